"""Tunix's side of `learner.py`: its RL trainer, stepping whenever it is told to.

    python benchmarks/peers/tunix_learner.py FOLDER SETTINGS

Runs in an environment with `google-tunix==0.1.7` and nothing of ours. FOLDER holds `weights.npz`,
`model.json` and `groups.npz`; SETTINGS is one JSON object:

    micro      sequences of a micro batch (unpacked); divides their number
    budget     tokens of a packed row; 0: sequences are padded instead
    remat      NONE, BLOCK or DECODER: Tunix's own rematerialization
    learning_rate

It is `tunix.rl.trainer.Trainer`, with its GRPO loss, as its learners set it up, with its own
gradient accumulation; nothing else of Tunix runs: its queues, rollouts and logs cost nothing here.
Prompts are padded on the left to the longest prompt, completions on the right to the longest
completion of the batch. Observations are in the completion, out of its mask.

Packed rows are Tunix's with two things put right. Without flash attention, which needs a TPU, its
model gets no causal mask with them, so that tokens see those that come after: `Causal` hands it
one. And its packing takes the number of trained tokens for a completion's length, which cuts
completions with observations in them: `packed` gives it the real one and puts the mask back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "WANDB_MODE": "disabled", "TF_CPP_MIN_LOG_LEVEL": "2"}

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.models.qwen2 import model as qwen2
from tunix.rl import algo_core, common, trainer, utils
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.sft import metrics_logger, peft_trainer
from tunix_padding import PAD, padded_arrays

Arrays = dict[str, Any]


class Causal(qwen2.Qwen2):
    """Tunix's model, with a causal mask where it is given none."""

    def __call__(self, input_tokens, positions, cache, attention_mask=None, **rest):  # type: ignore[no-untyped-def]
        if attention_mask is None:
            length = input_tokens.shape[1]
            attention_mask = jnp.tril(jnp.ones((1, length, length), jnp.bool_))
        return super().__call__(input_tokens, positions, cache, attention_mask, **rest)


def make_model(folder: Path, remat: str) -> Causal:
    """The model with the weights of `folder`."""
    shape = json.loads((folder / "model.json").read_text())
    config = qwen2.ModelConfig(
        num_layers=shape["layers"],
        vocab_size=shape["vocabulary"],
        embed_dim=shape["width"],
        hidden_dim=shape["ffn"],
        num_heads=shape["heads"],
        head_dim=shape["head_dim"],
        num_kv_heads=shape["kv_heads"],
        rope_theta=shape["rope_theta"],
        norm_eps=shape["eps"],
        use_tied_embedding=True,
        remat_config=qwen2.RematConfig[remat],
    )
    model = Causal(config, rngs=nnx.Rngs(0))
    with np.load(folder / "weights.npz") as stored:
        load(model, {name: stored[name] for name in stored.files})
    return model


def load(model: Causal, held: Arrays) -> None:
    """Set `model`'s weights to those of `held`, which are flat and stacked by layer."""
    model.embedder.input_embedding.set_value(jnp.asarray(held["embed"]))
    model.final_norm.w.set_value(jnp.asarray(held["norm"]))
    for index, layer in enumerate(model.layers):
        attention, mlp = layer.attn, layer.mlp
        places = {
            "attention_norm": layer.input_layernorm.w,
            "mlp_norm": layer.post_attention_layernorm.w,
            "query": attention.q_proj.w,
            "key": attention.k_proj.w,
            "value": attention.v_proj.w,
            "output": attention.o_proj.w,
            "query_bias": attention.q_bias,
            "key_bias": attention.k_bias,
            "value_bias": attention.v_bias,
            "gate": mlp.gate_proj.kernel,
            "up": mlp.up_proj.kernel,
            "down": mlp.down_proj.kernel,
        }
        for name, place in places.items():
            weight = held[f"layers.{name}"][index]
            place.set_value(jnp.asarray(weight.reshape(place.get_value().shape)))


def padded(held: Arrays) -> common.TrainExample:
    """All sequences in one example, padded to the longest prompt and completion."""
    arrays = {name: jnp.asarray(array) for name, array in padded_arrays(held).items()}
    return common.TrainExample(
        prompt_ids=arrays["prompt_ids"],
        prompt_mask=arrays["prompt_ids"] != PAD,
        completion_ids=arrays["completion_ids"],
        completion_mask=arrays["completion_mask"],
        advantages=jnp.asarray(held["advantages"]),
        ref_per_token_logps=None,
        old_per_token_logps=arrays["logprobs"],
    )


def micro_batches(example: common.TrainExample, size: int) -> list[common.TrainExample]:
    """`example` in parts of `size` sequences."""
    count = example.prompt_ids.shape[0]
    if count % size:
        raise SystemExit(f"micro = {size} does not divide the {count} sequences")
    return [
        jax.tree.map(lambda array, at=start: array[at : at + size], example)
        for start in range(0, count, size)
    ]


def packed(example: common.TrainExample, budget: int) -> list[common.TrainExample]:
    """`example` in rows of `budget` tokens, as Tunix's own packing fills them."""

    whole = dataclasses.replace(
        example,
        completion_mask=(example.completion_ids != PAD).astype(jnp.int32),
        ref_per_token_logps=example.completion_mask.astype(jnp.float32),
    )

    def one() -> Iterator[list[common.TrainExample]]:
        yield [whole]

    rows = [row for rows in utils.pack_sequences(one(), budget, PAD) for row in rows]
    return [
        dataclasses.replace(
            row,
            completion_mask=row.ref_per_token_logps.astype(jnp.int32),
            ref_per_token_logps=None,
        )
        for row in rows
    ]


def make_trainer(model: Causal, rate: float, parts: int) -> trainer.Trainer:
    """The trainer, as Tunix's GRPO learner sets it up."""
    grpo = GRPOConfig(
        num_generations=8, beta=0.0, epsilon=0.2, loss_agg_mode="sequence-mean-token-scale"
    )
    grpo.temperature = 1.0
    rule = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.0),
    )
    settings = peft_trainer.TrainingConfig(
        eval_every_n_steps=1_000_000,
        gradient_accumulation_steps=parts if parts > 1 else None,
    )
    logger = metrics_logger.MetricsLogger(None)
    made = trainer.Trainer(model, rule, settings, lambda: {}, logger)
    made.is_managed_externally = True

    def loss(model: Any, train_example: Any, algo_config: Any) -> Any:
        return algo_core.grpo_loss_fn(model, train_example, algo_config, pad_id=PAD, eos_id=-1)

    made.with_loss_fn(loss, has_aux=True)
    made.with_gen_model_input_fn(lambda x: {"train_example": x, "algo_config": grpo})
    return made


def peak_bytes(made: trainer.Trainer, example: common.TrainExample) -> int:
    """Bytes at the peak of the compiled train step, in which all of a step's memory is."""
    step = nnx.jit(made.create_train_step_fn(), donate_argnames=("optimizer",))
    program = step.lower(made.model, made.optimizer, example).compile()
    analysis = getattr(program, "compiled", program).memory_analysis()
    held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    return int(held + analysis.temp_size_in_bytes - analysis.alias_size_in_bytes)


def train(made: trainer.Trainer, parts: list[common.TrainExample], losses: list[Any]) -> float:
    """One optimizer step, and its mean loss."""
    losses.clear()
    made.train(parts)
    jax.block_until_ready(nnx.state(made.model))
    return float(np.mean([float(loss) for loss in losses]))


def main() -> None:
    """Compile, say what was compiled, then step as told."""
    folder, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    with np.load(folder / "groups.npz") as stored:
        held = {name: stored[name] for name in stored.files}
    example = padded(held)
    budget = given.get("budget", 0)
    parts = packed(example, budget) if budget else micro_batches(example, given["micro"])
    model = make_model(folder, given.get("remat", "NONE"))
    made = make_trainer(model, given.get("learning_rate", 1e-4), len(parts))
    losses: list[Any] = []
    buffer = made._buffer_metrics

    def noted(metrics: Any, loss: Any, **rest: Any) -> Any:
        losses.append(loss)
        return buffer(metrics, loss=loss, **rest)

    made._buffer_metrics = noted
    # A packed row's loss is its sum over its own length, a padded part's its mean over sequences.
    rows = parts[0].completion_ids
    scale = budget * len(parts) / (example.completion_ids.size) if budget else 1.0
    peak = peak_bytes(made, parts[0])
    first = train(made, parts, losses) * scale
    say(
        trained_tokens=int(sum(int(part.completion_mask.sum()) for part in parts)),
        computed_tokens=len(parts) * rows.shape[0] * (rows.shape[1] + parts[0].prompt_ids.shape[1]),
        programs={"train step": peak},
        peak_bytes=peak,
        loss=first,
        rows=[list(part.completion_ids.shape) for part in parts],
    )
    for _ in sys.stdin:
        started, busy = time.perf_counter(), time.process_time()
        loss = train(made, parts, losses) * scale
        seconds, cpu = time.perf_counter() - started, time.process_time() - busy
        peak_resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        say(seconds=seconds, cpu_seconds=cpu, loss=loss, resident_bytes=peak_resident)


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
