# ruff: noqa: E402, I001, E731, F401
"""Side-by-side benchmark peer: Tunix's agentic GRPO on CPU with a toy env.

Runs `tunix.AgenticGRPOLearner` (google-tunix 0.1.7 from PyPI, or a newer
source tree put on PYTHONPATH) the way its docs and its FrozenLake / DeepSWE
examples do: one `RLCluster` with disaggregated meshes (trainer on one XLA
device, rollout on another), a `BaseTaskEnv` subclass, the stock `ModelAgent`,
the stock `QwenChatTemplateParser`, `AgenticGRPOConfig`, a grain dataset, and
`learner.train(dataset)`. Nothing in Tunix's scheduling is patched; the script
only wraps a few public methods with a stopwatch.

Two rollout engines:
  vanilla  Tunix's own JAX sampler on a tiny randomly initialised Qwen3. Real
           sampling, real compiles (one per distinct remaining token budget).
  sim      A subclass of Tunix's own `MockRollout` (the class they ship "for
           testing and benchmarking performance"): generation is a sleep of
           --gen-latency per model call, tokens are random words, but weights
           are really resharded to the rollout mesh on every sync, so the
           sync path is the real one. Use it to compare orchestration only.

What is printed (JSON, last line prefixed RESULT):
  traj_per_s        trajectories that were trained on / wall time, after warm-up
  trainer_busy      fraction of that wall time inside update_actor (blocked
                    until the new weights are ready)
  trainer_side_busy same plus logp recompute and weight sync
  sync_wait_s       time the trainer waited for open episodes to drain before
                    it could copy the weights
  loop_blocked_frac share of wall time that Tunix's asyncio rollout loop was
                    more than 5 ms late (a 10 ms timer is watched)
  rollout_busy      fraction of wall time with >= 1 model call in flight
  rollout_mean_inflight  mean number of model calls in flight
  env_mean_inflight mean number of env.step / env.reset calls in flight
  episodes_mean_inflight mean number of open episodes (reset..close)
  ideal_traj_per_s  max_concurrency / mean episode latency: the ceiling a
                    scheduler would reach if it never let a slot go idle
  slot_util         traj_per_s / ideal_traj_per_s
A run that makes no progress for --stall-timeout seconds dumps every thread's
stack, prints RESULT with "stalled": true and exits with status 3.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import functools
import json
import logging
import os
import sys
import threading
import time

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=8, help="GRPO steps (global).")
ap.add_argument(
    "--warmup-steps", type=int, default=2, help="steps left out of the timing (compiles)."
)
ap.add_argument("--batch-size", type=int, default=8, help="prompts per step")
ap.add_argument("--mini-batch-size", type=int, default=None)
ap.add_argument(
    "--train-micro-batch-size",
    type=int,
    default=2,
    help="prompts per trainer micro step (streaming granularity)",
)
ap.add_argument(
    "--compute-logps-micro-batch-size",
    type=int,
    default=1,
    help="Tunix default 1: logps are computed on its event loop",
)
ap.add_argument("--group-size", type=int, default=4)
ap.add_argument("--turns", type=int, default=4)
ap.add_argument("--max-concurrency", type=int, default=32)
ap.add_argument("--off-policy-steps", type=int, default=0)
ap.add_argument("--engine", choices=["vanilla", "sim"], default="sim")
ap.add_argument("--layout", choices=["disagg", "colocated"], default="disagg")
ap.add_argument(
    "--env-latency",
    default="lognormal:0.3,1.0",
    help="const:x | uniform:a,b | lognormal:median,sigma |"
    " pareto:xm,alpha | bimodal:fast,slow,p_slow  (seconds/step)",
)
ap.add_argument("--reset-latency", default="const:0.1")
ap.add_argument("--reward-latency", default="const:0.1")
ap.add_argument(
    "--gen-latency", default="uniform:0.05,0.15", help="sim engine only, seconds per model call"
)
ap.add_argument("--fail-prob", type=float, default=0.0, help="probability that one env.step raises")
ap.add_argument("--max-prompt-length", type=int, default=96)
ap.add_argument("--max-response-length", type=int, default=192)
ap.add_argument(
    "--tokens-per-turn", type=int, default=24, help="mean tokens per turn for the sim engine"
)
ap.add_argument("--embed-dim", type=int, default=32)
ap.add_argument("--layers", type=int, default=2)
ap.add_argument("--beta", type=float, default=0.0)
ap.add_argument("--sampler-is", choices=["token"], default=None)
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--stall-timeout", type=float, default=90.0)
ap.add_argument("--trace-dir", default=None, help="write Tunix perf_v2 traces")
ap.add_argument(
    "--dump-metrics",
    action="store_true",
    help="print the names (and last values) of Tunix's metrics",
)
ap.add_argument("-v", "--verbose", action="store_true")
args = ap.parse_args()

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if args.layout == "disagg":
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    )
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import jax
import jax.numpy as jnp
import optax
import grain.python as pygrain
import grain
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

import tunix
from tunix.models.qwen3 import model as qwen3
from tunix.rl import reshard
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.agentic import agentic_grpo_learner
from tunix.rl.agentic.environments import base_environment
from tunix.rl.agentic.parser.chat_template_parser import parser as chat_parser_lib
from tunix.rl.rollout import base_rollout
from tunix.rl.rollout import mock_rollout

logging.basicConfig(level=logging.INFO if args.verbose else logging.ERROR)
from absl import logging as absl_logging

absl_logging.set_verbosity(absl_logging.INFO if args.verbose else absl_logging.ERROR)


# ----------------------------------------------------------------- latencies
class Latency:
    """Seeded latency distribution; one draw per call, order independent."""

    def __init__(self, spec: str, seed: int):
        self.kind, _, rest = spec.partition(":")
        self.p = [float(x) for x in rest.split(",")] if rest else []
        self.seed = seed

    def draw(self, *key: int) -> float:
        rng = np.random.default_rng([self.seed, *key])
        k, p = self.kind, self.p
        if k == "const":
            return p[0]
        if k == "uniform":
            return float(rng.uniform(p[0], p[1]))
        if k == "lognormal":
            return float(p[0] * np.exp(p[1] * rng.standard_normal()))
        if k == "pareto":
            return float(min(p[0] * (1 + rng.pareto(p[1])), 100 * p[0]))
        if k == "bimodal":
            return p[1] if rng.random() < p[2] else p[0]
        raise ValueError(self.kind)

    def mean(self) -> float:
        return float(np.mean([self.draw(i) for i in range(4000)]))


ENV_LAT = Latency(args.env_latency, args.seed + 1)
RESET_LAT = Latency(args.reset_latency, args.seed + 2)
REWARD_LAT = Latency(args.reward_latency, args.seed + 3)
GEN_LAT = Latency(args.gen_latency, args.seed + 4)


# ------------------------------------------------------------------ stopwatch
class Watch:
    """Records (begin, end) intervals by name; thread safe by list append."""

    def __init__(self):
        self.spans: dict[str, list[tuple[float, float]]] = {}
        self.last = time.perf_counter()

    def wrap(self, name, fn, after=None):
        @functools.wraps(fn)
        def inner(*a, **k):
            t0 = time.perf_counter()
            try:
                out = fn(*a, **k)
                if after is not None:
                    after()
                return out
            finally:
                self.add(name, t0)

        return inner

    def add(self, name, t0):
        t1 = time.perf_counter()
        self.spans.setdefault(name, []).append((t0, t1))
        self.last = t1

    def clipped(self, names, lo, hi):
        return [
            (max(a, lo), min(b, hi))
            for n in names
            for a, b in self.spans.get(n, [])
            if b > lo and a < hi
        ]

    def union(self, names, lo, hi):
        tot, end = 0.0, lo
        for a, b in sorted(self.clipped(names, lo, hi)):
            if b > end:
                tot += b - max(a, end)
                end = b
        return tot

    def total(self, names, lo, hi):
        return sum(b - a for a, b in self.clipped(names, lo, hi))


W = Watch()


# ---------------------------------------------------------------- environment
class ToyEnv(base_environment.BaseTaskEnv):
    """Multi-turn env: sleeps, answers with a short observation, scores at end."""

    def __init__(self, entry, group_id, pair_index, max_steps, **kw):
        super().__init__(max_steps=max_steps, group_id=group_id, pair_index=pair_index, **kw)
        self.prompt = str(np.asarray(entry["prompts"]).ravel()[0])
        self.key = (int(group_id), int(pair_index))
        self.text = ""
        self.final_reward_fn = self._final_reward
        self.t_open = time.perf_counter()

    def _initial_observation(self):
        t0 = time.perf_counter()
        time.sleep(RESET_LAT.draw(*self.key))
        W.add("env_reset", t0)
        return self.prompt

    def _step_impl(self, action):
        t0 = time.perf_counter()
        self.text += str(action)
        time.sleep(ENV_LAT.draw(*self.key, self.step_count))
        W.add("env_step", t0)
        if args.fail_prob:
            rng = np.random.default_rng([args.seed + 9, *self.key, self.step_count])
            if rng.random() < args.fail_prob:
                raise RuntimeError("sandbox died")
        return base_environment.EnvStepResult(
            observation=f"obs {self.step_count}",
            reward=0.0,
            done=self.step_count >= self.max_steps,
            info={},
        )

    def _final_reward(self):
        t0 = time.perf_counter()
        time.sleep(REWARD_LAT.draw(*self.key))
        W.add("reward", t0)
        letters = [c for c in self.text if c.isalpha()]
        return float(sum(c in "aeiou" for c in letters)) / max(1, len(letters))

    def close(self):
        W.add("episode", self.t_open)


# ------------------------------------------------------------------ tokenizer
def make_tokenizer() -> PreTrainedTokenizerFast:
    chars = [chr(c) for c in range(32, 127)] + ["\n"]
    vocab = {"<pad>": 0, "<|endoftext|>": 1}
    for s in ["<|im_start|>", "<|im_end|>", "<unk>"]:
        vocab[s] = len(vocab)
    for c in chars:
        vocab[c] = len(vocab)
    tok = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tok.decoder = decoders.Fuse()
    tok.add_special_tokens(
        [
            AddedToken(s, special=True)
            for s in ["<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        bos_token=None,
        unk_token="<unk>",
    )


# -------------------------------------------------------------- sim rollout
class SimRollout(mock_rollout.MockRollout):
    """Tunix's MockRollout with a real weight copy, so that syncs are real."""

    def __init__(self, rollout_actor, tokenizer, mesh, rollout_config, **kw):
        super().__init__(
            rollout_actor=rollout_actor,
            tokenizer=tokenizer,
            vocab_size=VOCAB,
            rollout_config=rollout_config,
            **kw,
        )
        graph, state = nnx.split(rollout_actor)
        shard = jax.tree.map(
            lambda s: jax.sharding.NamedSharding(
                mesh, s if s is not None else jax.sharding.PartitionSpec()
            ),
            nnx.get_partition_spec(state),
        )
        # A true copy: on one device device_put would alias the actor's buffers.
        state = jax.tree.map(jnp.copy, state)
        self._model = nnx.merge(graph, jax.device_put(state, shard))
        self._n = 0
        self._lock = threading.Lock()

    def generate(self, prompts, rollout_config, **kw):
        with self._lock:
            self._n += 1
            n = self._n
            self._min_generation_time = self._max_generation_time = 0.0
            # cap so that a whole episode fits the response budget as in the examples
            self._length_distribution = "fixed"
            # MockRollout's mean counts words; our tokenizer is one token a character
            # and its words are about five characters.
            self._length_mean = max(1, args.tokens_per_turn // 6)
            out = super().generate(prompts, rollout_config, **kw)
        time.sleep(GEN_LAT.draw(n))
        return out

    def update_params(self, params, filter_types=None):
        dst = nnx.state(self._model, filter_types or nnx.Param)
        new = reshard.reshard_pytree(params, dst)
        jax.block_until_ready(new)
        nnx.update(self._model, new)


# ----------------------------------------------------------------------- main
TOK = make_tokenizer()
VOCAB = 128


def build():
    devs = jax.devices()
    if args.layout == "disagg":
        train_devs, roll_devs = devs[:1], devs[1:2]
    else:
        train_devs = roll_devs = devs[:1]
    axes = ("fsdp", "tp")
    train_mesh = jax.sharding.Mesh(np.array(train_devs).reshape(1, 1), axes)
    roll_mesh = jax.sharding.Mesh(np.array(roll_devs).reshape(1, 1), axes)

    cfg = qwen3.ModelConfig(
        num_layers=args.layers,
        vocab_size=VOCAB,
        embed_dim=args.embed_dim,
        hidden_dim=2 * args.embed_dim,
        num_heads=4,
        head_dim=16,
        num_kv_heads=2,
        norm_eps=1e-6,
        rope_theta=10_000,
        use_tied_embedding=True,
    )
    model = qwen3.Qwen3(cfg, rngs=nnx.Rngs(args.seed))
    ref = qwen3.Qwen3(cfg, rngs=nnx.Rngs(args.seed)) if args.beta else None

    engine = "vanilla" if args.engine == "vanilla" else SimRollout
    perf_config = None
    rollout_config = base_rollout.RolloutConfig(
        max_tokens_to_generate=args.max_response_length,
        max_prompt_length=args.max_prompt_length,
        # vanilla pads a grown conversation to the next power of two
        kv_cache_size=4 * (args.max_prompt_length + args.max_response_length),
        temperature=1.0,
        top_p=1.0,
        top_k=None,
        return_logprobs=True,
        eos_tokens=[TOK.convert_tokens_to_ids("<|im_end|>")],
    )
    cluster_config = rl_cluster_lib.ClusterConfig(
        role_to_mesh={
            rl_cluster_lib.Role.ACTOR: train_mesh,
            rl_cluster_lib.Role.REFERENCE: train_mesh,
            rl_cluster_lib.Role.ROLLOUT: roll_mesh,
        },
        rollout_engine=engine,
        offload_to_cpu=False,
        training_config=rl_cluster_lib.RLTrainingConfig(
            actor_optimizer=optax.adamw(1e-4),
            eval_every_n_steps=10_000,
            max_steps=args.steps,
            mini_batch_size=args.mini_batch_size or args.batch_size,
            train_micro_batch_size=args.train_micro_batch_size,
            # >1 moves logp recompute and rewards off the event loop, into the
            # consumer thread, and must then equal train_micro_batch_size.
            compute_logps_micro_batch_size=args.compute_logps_micro_batch_size,
            metrics_logging_options=None,
            checkpoint_root_directory=None,
        ),
        rollout_config=rollout_config,
    )
    if args.trace_dir:
        from tunix import PerfMetricsConfig
        from tunix.perf.experimental.export import PerfMetricsExport

        perf_config = PerfMetricsConfig(
            custom_export_fn_v2=PerfMetricsExport.from_cluster_config(
                cluster_config=cluster_config, trace_dir=args.trace_dir
            ).export_metrics
        )
    cluster_cls = rl_cluster_lib.RLCluster
    cluster = cluster_cls(
        actor=model,
        reference=ref,
        tokenizer=TOK,
        cluster_config=cluster_config,
        perf_config=perf_config,
    )
    algo = agentic_grpo_learner.GRPOConfig(
        num_generations=args.group_size,
        num_iterations=1,
        beta=args.beta,
        epsilon=0.2,
        epsilon_high=0.28,
        system_prompt="You act.",
        max_concurrency=args.max_concurrency,
        off_policy_steps=args.off_policy_steps,
        max_response_length=args.max_response_length,
        episode_timeout=600.0,
        loss_agg_mode="sequence-mean-token-mean",
        sampler_is=args.sampler_is,
    )
    chat_parser = chat_parser_lib.QwenChatTemplateParser(TOK)
    learner = agentic_grpo_learner.GRPOLearner(
        cluster,
        reward_fns=None,  # trajectory reward from the env, as in DeepSWE
        algo_config=algo,
        chat_parser=chat_parser,
        env_class=ToyEnv,
        env_kwargs={"max_steps": args.turns},
        metric_fns=[record_group],
    )
    return cluster, learner


GROUP_STATS: list[dict] = []
LAGS: list[tuple[float, float]] = []


def record_group(prompts, completions, rewards, advantages, **kw):
    GROUP_STATS.append(
        {
            "t": time.perf_counter(),
            "r": float(np.mean(rewards)),
            "r_std": float(np.std(rewards)),
            "same": int(len(set(completions)) == 1),
        }
    )
    return {}


def dataset():
    n = args.batch_size * (args.steps + args.off_policy_steps + 2)
    data = [{"prompts": f"task {i}"} for i in range(n)]
    return grain.MapDataset.source(data).batch(
        args.batch_size,
        batch_fn=lambda xs: {"prompts": [x["prompts"] for x in xs]},
    )


def main():
    cluster, learner = build()
    trainer = cluster.actor_trainer
    state = {"done": False, "stalled": False}

    # Stopwatch. update_actor is blocked on the new weights so that its time is
    # the device's, not the dispatch's.
    cluster.update_actor = W.wrap(
        "train",
        cluster.update_actor,
        after=lambda: jax.block_until_ready(nnx.state(trainer.model)),
    )
    cluster.sync_weights = W.wrap("sync", cluster.sync_weights)
    cluster.generate = W.wrap("generate", cluster.generate)
    lock = learner._rollout_sync_lock  # timed only
    lock.acquire_weight_sync = W.wrap("sync_wait", lock.acquire_weight_sync)
    for name in ("get_actor_per_token_logps", "get_ref_per_token_logps"):
        setattr(cluster, name, W.wrap("logps", getattr(cluster, name)))

    steps: list[tuple[float, int]] = []

    def watch_steps():
        seen = -1
        while not state["done"]:
            g = cluster.global_steps
            if g != seen:
                seen = g
                steps.append((time.perf_counter(), g))
                if args.verbose:
                    print("global step", g, flush=True)
            if time.perf_counter() - W.last > args.stall_timeout:
                state["stalled"] = True
                print("NO PROGRESS: dumping stacks", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                report()
                os._exit(3)
            time.sleep(0.002)

    t_begin = time.perf_counter()

    def report():
        t_now = time.perf_counter()
        reached = [(t, g) for t, g in steps if g >= args.warmup_steps]
        lo = reached[0][0] if reached else t_begin
        hi = steps[-1][0] if steps and steps[-1][1] > args.warmup_steps else t_now
        n_steps = (steps[-1][1] if steps else 0) - args.warmup_steps
        wall = max(hi - lo, 1e-9)
        n_traj = max(0, n_steps) * args.batch_size * args.group_size
        eps = [b - a for a, b in W.spans.get("episode", []) if a >= lo and b <= hi]
        rounds = [b - a for (a, _), (b, _) in zip(reached, reached[1:], strict=False)]
        ep = float(np.mean(eps)) if eps else float("nan")
        f = lambda x: round(float(x), 4)
        res = {
            "tunix": tunix.__version__,
            "jax": jax.__version__,
            "config": {
                k: getattr(args, k)
                for k in (
                    "engine layout steps batch_size group_size turns max_concurrency"
                    " off_policy_steps train_micro_batch_size env_latency"
                    " reset_latency reward_latency gen_latency".split()
                )
            },
            "stalled": state["stalled"],
            "steps_timed": n_steps,
            "wall_s": f(wall),
            "traj_per_s": f(n_traj / wall),
            "step_s_mean": f(np.mean(rounds)) if rounds else None,
            "step_s_p95": f(np.percentile(rounds, 95)) if rounds else None,
            "trainer_busy": f(W.union(["train"], lo, hi) / wall),
            "trainer_side_busy": f(W.union(["train", "sync", "logps"], lo, hi) / wall),
            "logps_s": f(W.total(["logps"], lo, hi)),
            "sync_s": f(W.total(["sync"], lo, hi)),
            "sync_wait_s": f(W.total(["sync_wait"], lo, hi)),
            "rollout_busy": f(W.union(["generate"], lo, hi) / wall),
            "rollout_mean_inflight": f(W.total(["generate"], lo, hi) / wall),
            "env_mean_inflight": f(W.total(["env_step", "env_reset", "reward"], lo, hi) / wall),
            "episodes_mean_inflight": f(W.total(["episode"], lo, hi) / wall),
            "episode_s_mean": f(ep),
            "episode_s_p50_p95_p99": [f(np.percentile(eps, q)) for q in (50, 95, 99)]
            if eps
            else None,
            "ideal_traj_per_s": f(args.max_concurrency / ep) if eps else None,
            "slot_util": f(n_traj / wall / (args.max_concurrency / ep)) if eps else None,
            "loop_blocked_frac": f(
                sum(lag for t, lag in LAGS if lo <= t <= hi and lag > 0.005) / wall
            ),
            "loop_lag_max_s": f(max((lag for t, lag in LAGS if lo <= t <= hi), default=0)),
            "groups": len(GROUP_STATS),
            "groups_with_zero_reward_std": sum(g["r_std"] < 1e-9 for g in GROUP_STATS),
            "groups_with_identical_first_turns": sum(g["same"] for g in GROUP_STATS),
            "total_s_with_compile": f(t_now - t_begin),
        }
        print("RESULT " + json.dumps(res), flush=True)

    # Event-loop lag: how late a 10 ms timer fires on Tunix's rollout loop.
    async def heartbeat():
        while not state["done"]:
            t0 = time.perf_counter()
            await asyncio.sleep(0.01)
            LAGS.append((time.perf_counter(), time.perf_counter() - t0 - 0.01))

    asyncio.run_coroutine_threadsafe(heartbeat(), learner.loop)
    if args.dump_metrics:
        seen: dict = {}

        def ext(buf):
            for k, (v, op) in buf.metrics.items():
                if k not in ("prompts", "completions"):
                    try:
                        seen[k] = (len(v), float((op or np.mean)(np.asarray(v))))
                    except Exception:  # pylint: disable=broad-exception-caught
                        seen[k] = (len(v), None)
            state["metrics"] = seen

        cluster.with_external_metrics_logger(ext)

    th = threading.Thread(target=watch_steps, daemon=True)
    th.start()
    learner.train(dataset())
    state["done"] = True
    th.join()
    steps.append((time.perf_counter(), cluster.global_steps))
    # the last entry repeats the final step unless the watcher missed it
    if len(steps) > 1 and steps[-1][1] == steps[-2][1]:
        steps.pop()
    for k, (n, v) in sorted(state.get("metrics", {}).items()):
        print(f"METRIC {k:55s} n={n:<4d} {v}")
    report()
    sys.stdout.flush()
    if args.trace_dir:
        sys.exit(0)  # let the Perfetto writer flush
    os._exit(0)  # Tunix leaves its event-loop thread and executor running


if __name__ == "__main__":
    main()
