"""Locks that tasks and processes share, as files: the kernel frees them when their holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox.errors import SandboxUnavailable, SandboxUsageError

POLL = 0.1  # seconds between two tries


@asynccontextmanager
async def locked(
    path: Path, *, holders: int = 1, within: float, purpose: str
) -> AsyncIterator[None]:
    """Hold one of `holders` places for the block, after at most `within` seconds of waiting.

    Raises SandboxUnavailable, with the `purpose` and the process that is in the way, and
    SandboxUsageError when there can be no file.
    """
    places = [path.with_name(f"{path.name}.{n}.lock") for n in range(holders)]
    deadline = anyio.current_time() + within
    while (held := await anyio.to_thread.run_sync(_try_each, places)) is None:
        if anyio.current_time() > deadline:
            culprit = await anyio.to_thread.run_sync(_holder, places[0])
            raise SandboxUnavailable(
                f"waited {within:.0f} s to {purpose}: process {culprit} is at it"
            )
        await anyio.sleep(POLL)
    try:
        yield
    finally:
        os.close(held)


def _try_each(places: list[Path]) -> int | None:
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            reason = problem.strerror
            raise SandboxUsageError(f"can't keep locks in {place.parent}: {reason}") from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor
    return None


def _holder(place: Path) -> str:
    try:
        return place.read_text() or "unknown"
    except OSError:
        return "unknown"
