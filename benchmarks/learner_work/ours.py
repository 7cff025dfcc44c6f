"""Our side: a learner that makes a step whenever it is told to, in a process of its own.

Says a line of JSON when it is ready, another after each line that it reads, and ends with its
input.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from patchgym.trainer.batching import Batch, TrainSequence, flat_rows
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.execution import Execution
from patchgym.trainer.optimizer import update
from patchgym.trainer.row_programs import Weights, add_rows, row_arrays

from .groups import longest_completion, read_groups
from .models import read_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How our learner computes the step."""

    flat: bool = False
    """One padded row a sequence, of the longest one's length, instead of trees."""
    row_tokens: tuple[int, ...] = LearnerConfig().row_tokens
    execution: Execution = Execution()
    learning_rate: float = 1e-4

    @classmethod
    def of(cls, given: dict[str, Any]) -> Settings:
        """From JSON: its keys are `flat`, `row_tokens`, and those of `Execution`."""
        rows = tuple(given.pop("row_tokens", LearnerConfig().row_tokens))
        flat = given.pop("flat", False)
        return cls(flat=flat, row_tokens=rows, execution=Execution(**given))


class FlatLearner(Learner):
    """A learner whose rows are single sequences, padded."""

    def pack(self, groups: Sequence[Sequence[TrainSequence]]) -> Batch:
        longest = max(len(s.tokens) for group in groups for s in group)
        return flat_rows(groups, length=-(-longest // 64) * 64)


def make_config(settings: Settings, groups: Sequence[Sequence[TrainSequence]]) -> LearnerConfig:
    """GRPO's clip with the average that Tunix calls `sequence-mean-token-scale`."""
    return LearnerConfig(
        loss="ppo",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="constant",
        length_normalizer=longest_completion(groups),
        learning_rate=settings.learning_rate,
        row_tokens=settings.row_tokens,
    )


def peak_bytes(
    config: LearnerConfig, learner: Learner, batch: Batch, execution: Execution
) -> dict[str, int]:
    """Bytes at the peak of each compiled program of a step: arguments, temporaries and outputs,
    plus what is alive without being its argument."""
    state = learner.state
    gradient = jax.tree.map(np.zeros_like, state.params)
    moments = _bytes(state.optimizer)
    found: dict[str, int] = {}
    for length in sorted({row.length for row in batch.rows}):
        row = next(row for row in batch.rows if row.length == length)
        arrays: Any = row_arrays([row], execution)
        lowered = add_rows.lower(
            config, learner.model, execution, Weights(state.params), gradient, arrays
        )
        found[f"row of {length}"] = _peak(lowered.compile()) + moments
    scale = np.float32(1)
    lowered = update.lower(config, state.params, state.optimizer, gradient, scale)
    found["update"] = _peak(lowered.compile())
    return found


def _peak(program: Any) -> int:
    analysis = program.memory_analysis()
    held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    return int(held + analysis.temp_size_in_bytes - analysis.alias_size_in_bytes)


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def serve(folder: Path, given: dict[str, Any]) -> None:
    """Compile, say what was compiled, then step as told.

    `folder` holds `weights.npz`, `model.json` and `groups.npz`; `given` is read by `Settings.of`.
    """
    settings = Settings.of(given)
    groups = read_groups(folder / "groups.npz")
    model, params = read_model(folder)
    config = make_config(settings, groups)
    kind = FlatLearner if settings.flat else Learner
    learner = kind(config, model, params, execution=settings.execution)
    del params
    # On its device by name, as what a step returns is: else the second step would compile again.
    learner.restore(jax.device_put(learner.state, jax.devices()[0]))
    batch = learner.pack(groups)
    memory = peak_bytes(config, learner, batch, settings.execution)
    first = learner.train(groups)
    say(
        trained_tokens=batch.loss_tokens,
        computed_tokens=batch.padded_tokens,
        programs=memory,
        peak_bytes=max(memory.values()),
        loss=first.loss,
        rows=[row.length for row in batch.rows],
    )
    for _ in sys.stdin:
        started, busy = time.perf_counter(), time.process_time()
        report = learner.train(groups)
        seconds, cpu = time.perf_counter() - started, time.process_time() - busy
        say(
            seconds=seconds,
            cpu_seconds=cpu,
            loss=report.loss,
            pack_seconds=report.pack_seconds,
            update_seconds=report.update_seconds,
            resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        )


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
