# Two commands do everything: `make quickstart` and `make test`. Both set up what is missing.

PYTHON_BIN := .venv/bin
ARGS ?=
CASE ?=

.PHONY: quickstart test check format setup vllm aot chaos bench-sandbox bench-sampler bench-learner bench-ledger bench-ray bench-dashboard bench-trajectories bench-attention bench-install bench-linting bench-mining bench-injection bench-tampering bench-telemetry bench-evaluate bench-rollout bench-rewards bench-idle bench-quickstart bench-scale

quickstart: setup  ## Train the pretrained model on the bundled repair tasks
	$(PYTHON_BIN)/patchgym train --config examples/quickstart.toml $(ARGS)

test: setup  ## All tests, on a real Docker engine and the real weights
	$(PYTHON_BIN)/pytest $(ARGS)

check: setup  ## Lint, format and types
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy
	$(PYTHON_BIN)/pyright

chaos: setup  ## 1,000 leases and a training killed 200 times, and whatever else can go wrong: an hour
	PATCHGYM_CHAOS_LEASES=1000 PATCHGYM_CHAOS_KILLS=$${PATCHGYM_CHAOS_KILLS:-200} $(PYTHON_BIN)/pytest tests/chaos $(ARGS)

format: setup
	$(PYTHON_BIN)/ruff check --fix .
	$(PYTHON_BIN)/ruff format .

setup:
	@scripts/setup.sh

vllm: setup  ## vLLM for CPU in .venv-vllm, beside everything else (2.3 GB)
	@scripts/vllm.sh

aot: setup  ## The learner's step compiled for TPUs, without one (0.5 GB); CASE=NAME for one of them
	@scripts/aot.sh
	.venv-aot/bin/python benchmarks/aot.py $(CASE) $(ARGS)

bench-sandbox bench-sampler bench-ledger bench-ray bench-dashboard bench-trajectories bench-attention bench-install bench-linting bench-mining bench-injection bench-tampering bench-telemetry: bench-%: setup
	$(PYTHON_BIN)/python benchmarks/bench_$*.py $(ARGS)

bench-evaluate: setup  ## Against swebench itself; ARGS must name --tasks and --mirror
	$(PYTHON_BIN)/python benchmarks/evaluate.py $(ARGS)

bench-rollout: setup  ## Beside Tunix's agentic GRPO, in a simulated world: about fifteen quiet minutes a round
	$(PYTHON_BIN)/python benchmarks/rollout.py $(ARGS)

bench-learner: setup  ## A step beside one of Tunix's GRPO trainer: about half an hour on two cores
	$(PYTHON_BIN)/python benchmarks/learner.py $(ARGS)

bench-rewards: setup  ## What fires on what, and what slow scoring costs: about an hour on two cores
	$(PYTHON_BIN)/python benchmarks/rewards.py $(ARGS)

bench-idle: setup  ## Injected causes of waits beside the account of them, in virtual time; ARGS=--real adds the wall clock
	$(PYTHON_BIN)/python benchmarks/idle.py $(ARGS)

bench-quickstart: setup  ## Three seeds of the quickstart: up to an hour on two cores
	$(PYTHON_BIN)/python benchmarks/bench_quickstart.py $(ARGS)

bench-scale: setup  ## A cluster on paper; ARGS="--measure --write" beside real runs here: half a quiet hour
	$(PYTHON_BIN)/python benchmarks/scale.py $(ARGS)
