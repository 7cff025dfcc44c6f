"""The writer's side of a ledger: what the event loop calls, without ever waiting for a disk."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
import anyio.to_thread

from patchgym.agent import Trajectory
from patchgym.rewards import Reward
from patchgym.trainer.errors import RunError

from .damage import StuckDisk, backup_path
from .files import copy_database
from .known import KnownGroups
from .restore import RestoredGroup, check_tail, restore_rows
from .rows import rollout_rows
from .statements import FAILED_AGAIN, GROUP, QUARANTINE, READMIT, STEP, VISITED, WORKED
from .states import GroupState, check_change
from .writer import Statement, Writer, WriterStatistics

_CLOSE_LIMIT = 30.0  # seconds
_STUCK = 120.0  # seconds without a batch after which a disk counts as stuck
_BACKLOG = 20_000  # transactions; a disk that slow must hold the run back, not fill its memory
_BACKUP_SHARE = 0.01  # of the time since the last backup that the next one may take
_FAILED = ("too_few", "stale")  # reasons that are the task's, where its rollouts never came back


class Ledger:
    """An async context manager; every method but the async ones is for the event loop's thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = Writer(path)
        self._open: list[Statement] | None = None
        """Statements of the transaction under way."""
        self._groups = KnownGroups()
        self._undo: list[tuple[str, int, GroupState | None]] = []
        """What groups were before the transaction under way changed them."""
        self._steps = 0
        self._backed_up = (float("-inf"), 0.0)
        """When (monotonic), and the seconds that it took."""
        self.on_stuck: Callable[[str], None] = lambda words: None
        """Told when the disk is stuck: whoever waits for it can't be made to end."""

    async def __aenter__(self) -> Ledger:
        opening = await anyio.to_thread.run_sync(self._writer.start)
        self._groups = KnownGroups(opening.groups)
        self._steps = opening.steps
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        closed = False
        with anyio.CancelScope(shield=True):
            closed = await anyio.to_thread.run_sync(self._writer.stop, _CLOSE_LIMIT)
        if kind is None:
            self.check()
            if not closed:
                raise RunError(
                    f"{self.path}: not all was written within {_CLOSE_LIMIT:.0f} s: is its disk "
                    "stuck? go on with --resume"
                )

    async def flush(self, *, durable: bool = True) -> None:
        """Return when all that was recorded so far is written, and synced if `durable`; RunError
        when that can't be, or the disk takes nothing for two minutes."""
        try:
            await anyio.to_thread.run_sync(lambda: self._writer.wait(durable=durable, limit=_STUCK))
        except StuckDisk as error:
            self.on_stuck(str(error))
            raise

    async def room(self) -> None:
        """Return at once, unless the disk has fallen far behind."""
        self.check()
        if self.statistics().waiting > _BACKLOG:
            await self.flush(durable=False)

    async def backup(self) -> Path | None:
        """Copy the ledger to `NAME.backup`, with all that was recorded so far; None when that was
        done so lately that it would take more than 1% of the time since."""
        made, took = self._backed_up
        if time.monotonic() - made < took / _BACKUP_SHARE:
            return None
        await self.flush()
        start, target = time.monotonic(), backup_path(self.path)
        try:
            await anyio.to_thread.run_sync(copy_database, self.path, target)
        except (OSError, sqlite3.Error) as error:
            raise RunError(
                f"{target}: the backup of the ledger can't be written: {error}; free space, then "
                "go on with --resume"
            ) from None
        self._backed_up = (time.monotonic(), time.monotonic() - start)
        return target

    def check(self) -> None:
        """RunError when something that was recorded could not be written."""
        self._writer.check()

    def statistics(self) -> WriterStatistics:
        """What the writer did so far, and what waits for it."""
        return self._writer.statistics()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is recorded inside is on disk together or not at all; nothing of it is recorded
        when the block raises. There is no waiting inside."""
        if self._open is not None:
            yield  # part of the one around it
            return
        self._open = []
        try:
            yield
        except BaseException:
            for group_id, number, before in reversed(self._undo):
                self._groups.put(group_id, number, before)
            self._open, self._undo = None, []
            raise
        statements, self._open, self._undo = self._open, None, []
        if statements:
            self._writer.submit(statements)

    def record(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Queue one statement."""
        if self._open is None:
            self._writer.submit([(sql, values)])
        else:
            self._open.append((sql, values))

    def meta(self, key: str, value: object) -> None:
        """Set a named JSON value of the run."""
        self.record("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def event(self, kind: str, **detail: object) -> None:
        """Note that something happened."""
        self.record("INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, json.dumps(detail)))

    def step(self, step: int, metrics: Mapping[str, object]) -> None:
        """Record a finished optimizer step."""
        self._steps = max(self._steps, step + 1)
        values = (step, json.dumps(metrics), time.time())
        self.record(STEP, values)

    def rollout(
        self,
        purpose: str,
        group_id: str,
        task_id: str,
        member: int,
        trajectory: Trajectory,
        reward: Reward,
    ) -> None:
        """Record a finished rollout with its turns and scores; its file must be on disk by now."""
        with self.transaction():
            rows = rollout_rows(
                purpose, group_id, task_id, member, trajectory, reward, finished=time.time()
            )
            for sql, values in rows:
                self.record(sql, values)

    def group(
        self,
        group_id: str,
        task_id: str,
        number: int,
        state: GroupState,
        *,
        reason: str = "",
        step: int | None = None,
        members: Sequence[str] = (),
        version: int | None = None,
    ) -> None:
        """Set a group's state; IllegalChange when it can't come from the one that it is in.

        `members` are rollout ids, `version` is the oldest of the policy among them; both are kept
        where they are not given.
        """
        before, now = self._groups.state(group_id), time.time()
        check_change(group_id, before, state)
        with self.transaction():
            self._enter(group_id, number, state)
            if state == "pending":
                if before is None:
                    self.record(VISITED, (task_id,))
            elif before == "pending" and reason != "quarantined":
                failed = state == "dropped" and reason in _FAILED
                self.record(FAILED_AGAIN if failed else WORKED, (task_id,))
            times = (now if state == entered else None for entered in ("pending", "ready", "taken"))
            names = json.dumps(list(members))
            values = (group_id, task_id, number, state, reason, step, names, now, version, *times)
            self.record(GROUP, values)

    def state(self, group_id: str) -> GroupState | None:
        """A group's state; None when it was never opened."""
        return self._groups.state(group_id)

    def quarantine(self, task_id: str, reason: str) -> None:
        """Leave a task out from now on, for that reason."""
        self.record(QUARANTINE, (task_id, 1, reason))

    def readmit(self, task_id: str) -> None:
        """Take a task in again; its failures in a row are forgotten."""
        self.record(READMIT, (task_id,))

    def restore(
        self, step: int, *, ready: Sequence[RestoredGroup] = (), reopen: Sequence[int] = ()
    ) -> None:
        """Go on from a checkpoint of `step` updates, in one transaction: `ready` groups are so
        again whatever later updates made of them, groups with the numbers `reopen` are pending,
        and steps from `step` on are forgotten, with evaluations of later weights. The only way out
        of `committed`.

        RunError when the ledger ends before the checkpoint: it has lost its last writes.
        """
        check_tail(self.path, self._steps, step)
        with self.transaction():
            for sql, values in restore_rows(step, ready, reopen, now=time.time()):
                self.record(sql, values)
            for group in ready:
                self._enter(group.group_id, group.number, "ready")
            for number in reopen:
                self._enter(self._groups.name(number), number, "pending")
            counts = {"ready": len(ready), "reopen": len(reopen)}
            self.event("restored", step=step, known=self._steps, **counts)
        self._steps = step

    def _enter(self, group_id: str, number: int, state: GroupState) -> None:
        self._undo.append((group_id, number, self._groups.state(group_id)))
        self._groups.put(group_id, number, state)
