"""Checkpoints of several processes: each writes its part, and the first alone tends the folder."""

from __future__ import annotations

from collections.abc import Callable

import jax
import orbax.checkpoint as ocp

_LIMIT_MILLISECONDS = 300_000


def first_process() -> bool:
    """Whether this process is the one that names, removes and measures checkpoints."""
    return jax.process_index() == 0


def once(name: str, work: Callable[[], None]) -> None:
    """Have the first process do `work`; returns in all of them when it is done.

    Every process must call it, in the same order for one `name`. Nothing is sent over devices, so
    that it may happen beside a step. Where the work fails, the first process raises its error.
    """
    try:
        if first_process():
            work()
    finally:
        meet = ocp.multihost.get_barrier_sync_fn()
        meet(key=f"patchgym {name}", timeout_ms=_LIMIT_MILLISECONDS)
