"""What is scored: a diff of a task with the change that it makes, which is read once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task

from .changes import read_change
from .kept_change import KeptChange, kept, opened
from .once import Once
from .scene import Change
from .score_store import ScoreStore, store_key, task_digest

REMEMBERED = 256  # changes
SMALL = 1 << 20  # bytes of a change that is remembered
KEPT = 1 << 18  # bytes of a change that the store keeps; a larger one takes longer than git
_LINE = 150  # bytes that a line of a hunk takes, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One diff of one task."""

    task: Task
    digest: str
    """The task's `task_digest`."""
    diff: bytes
    change: Change
    gold: Change


class Subjects:
    """Reads changes in threads, each once; small ones are remembered."""

    def __init__(self, repositories: Path, store: ScoreStore | None = None) -> None:
        """`repositories` is the folder of the materialized bundled repositories; what `store` has
        need not be read again."""
        self._repositories, self._store = repositories, store
        self._changes: Once[Change] = Once(REMEMBERED)

    async def read(self, task: Task, diff: bytes) -> Subject:
        """Raises PatchgymError when the task's repository can't be read."""
        digest = await anyio.to_thread.run_sync(task_digest, task)
        change = await self._change(task, digest, diff)
        gold = await self._change(task, digest, task.gold_patch.encode())
        return Subject(task=task, digest=digest, diff=diff, change=change, gold=gold)

    async def _change(self, task: Task, digest: str, diff: bytes) -> Change:
        key = store_key("change 1", digest, hashlib.sha256(diff).hexdigest())

        async def read() -> Change:
            found = None if self._store is None else await self._store.get(key, KeptChange)
            if found is not None:
                return opened(found)
            change = await anyio.to_thread.run_sync(self._read, task, diff)
            if self._store is not None and _size(change) <= KEPT and (small := kept(change)):
                await self._store.put(key, small)
            return change

        change, _ = await self._changes.get(key, read, keep=_is_small)
        return change

    def _read(self, task: Task, diff: bytes) -> Change:
        return read_change(task, diff, materialize(task, self._repositories))


def _is_small(change: Change) -> bool:
    return _size(change) <= SMALL


def _size(change: Change) -> int:
    """Bytes that it takes, about."""
    contents = sum(len(file.before or b"") + len(file.after or b"") for file in change.files)
    return contents + change.size * _LINE
