# Two commands do everything: `make quickstart` and `make test`. Both set up what is missing.

PYTHON_BIN := .venv/bin
ARGS ?=

.PHONY: quickstart test check format setup vllm chaos bench-sandbox bench-sampler bench-learner bench-install bench-linting bench-mining bench-injection bench-tampering bench-evaluate bench-rollout bench-quickstart

quickstart: setup  ## Train the pretrained model on the bundled repair tasks
	$(PYTHON_BIN)/patchgym train --config examples/quickstart.toml $(ARGS)

test: setup  ## All tests, on a real Docker engine and the real weights
	$(PYTHON_BIN)/pytest $(ARGS)

check: setup  ## Lint, format and types
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy
	$(PYTHON_BIN)/pyright

chaos: setup  ## 1,000 leases under killed containers, cancellations and a restarted daemon
	PATCHGYM_CHAOS_LEASES=1000 $(PYTHON_BIN)/pytest tests/chaos $(ARGS)

format: setup
	$(PYTHON_BIN)/ruff check --fix .
	$(PYTHON_BIN)/ruff format .

setup:
	@scripts/setup.sh

vllm: setup  ## vLLM for CPU in .venv-vllm, beside everything else (2.3 GB)
	@scripts/vllm.sh

bench-sandbox bench-sampler bench-learner bench-install bench-linting bench-mining bench-injection bench-tampering: bench-%: setup
	$(PYTHON_BIN)/python benchmarks/bench_$*.py $(ARGS)

bench-evaluate: setup  ## Against swebench itself; ARGS must name --tasks and --mirror
	$(PYTHON_BIN)/python benchmarks/evaluate.py $(ARGS)

bench-rollout: setup  ## Beside Tunix's agentic GRPO, in a simulated world: about fifteen quiet minutes a round
	$(PYTHON_BIN)/python benchmarks/rollout.py $(ARGS)

bench-quickstart: setup  ## Three seeds of the quickstart: up to an hour on two cores
	$(PYTHON_BIN)/python benchmarks/bench_quickstart.py $(ARGS)
