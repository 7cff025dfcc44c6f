"""Names for what a capture shows: the learner's steps, and the stages inside and between them.

Without a capture an annotation costs a test of one flag. What began before a capture has no name in
it: the profiler looks when a stage is entered. A stage is a span as well: see docs/telemetry.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from patchgym.trainer.telemetry.signals import stage_span


def step(number: int) -> AbstractContextManager[Any]:
    """The learner's step from version `number` to the next, in the thread that makes it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return nullcontext()
    annotation: AbstractContextManager[Any] = jax.profiler.StepTraceAnnotation(
        "train", step_num=number
    )
    return annotation


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage by name; no annotation where JAX was never imported, so that nothing here imports
    it."""
    jax = sys.modules.get("jax")
    annotation: AbstractContextManager[Any] = (
        nullcontext() if jax is None else jax.profiler.TraceAnnotation(name)
    )
    with stage_span(name), annotation:
        yield
