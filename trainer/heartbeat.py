"""A run's sign of life: a file that names the process that owns it, touched while that lives.

    heartbeat.json     who: host, boot, PID namespace, process, its start
    its time           when that process's event loop last came round

A process that was killed can't say so. Who looks at a run compares: the ledger says `running`, and
its owner is dead; or it is alive and has not come round for long (it was stopped, or it is stuck).
"""

from __future__ import annotations

import datetime
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox import Owner
from patchgym.sandbox.reaper import current_owner, is_dead

from .run_folder import RunFolder

EVERY = 2.0
"""Seconds between two beats."""
SILENT = 15.0
"""Seconds without a beat after which a live process counts as silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The last sign of life of a run."""

    owner: Owner
    last: float
    """Seconds since the epoch."""

    def words(self, now: float) -> str:
        """`running`, or since when it is not, in the local time of whoever asks."""
        here = current_owner()
        since = _clock(self.last, now)
        if is_dead(self.owner, here, same_machine=self.owner.host == here.host):
            return f"gone since {since}"
        if now - self.last > SILENT:
            where = "" if self.owner.host == here.host else f" on {self.owner.host}"
            return f"silent since {since} (process {self.owner.pid}{where})"
        return "running"


async def beat(folder: RunFolder) -> None:
    """Leave signs of life until cancelled. A disk that can't take them is for others to tell."""
    path = heartbeat_path(folder)
    await anyio.to_thread.run_sync(_begin, path)
    while True:
        await anyio.sleep(EVERY)
        await anyio.to_thread.run_sync(_touch, path, abandon_on_cancel=True)


def pulse(folder: RunFolder) -> Pulse | None:
    """The last sign of life; None when there never was one."""
    path = heartbeat_path(folder)
    try:
        owner = Owner.of(json.loads(path.read_text(encoding="utf-8")))
        last = path.stat().st_mtime
    except (OSError, ValueError, TypeError):
        return None
    return None if owner is None else Pulse(owner=owner, last=last)


def state_now(folder: RunFolder, state: str, now: float | None = None) -> str:
    """A run's state: that of its ledger, unless it says `running` and nobody is there."""
    found = pulse(folder) if state == "running" else None
    return state if found is None else found.words(time.time() if now is None else now)


def heartbeat_path(folder: RunFolder) -> Path:
    """Where the signs of life of a run are."""
    return folder.path / "heartbeat.json"


def _begin(path: Path) -> None:
    scratch = path.with_name(f"{path.name}.partial")
    try:
        scratch.write_text(json.dumps(current_owner().labels()), encoding="utf-8")
        os.replace(scratch, path)
    except OSError:
        pass


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        pass


def _clock(at: float, now: float) -> str:
    moment, today = (datetime.datetime.fromtimestamp(each) for each in (at, now))
    same_day = moment.date() == today.date()
    return moment.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M")
