"""The asking side of a capture: find who runs the run, ask, wait, or say why not."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.profile_config import LONGEST, SHORTEST
from patchgym.trainer.run_folder import RunFolder

from .mailbox import Answer, Mailbox, Owner

TAKEN_WITHIN = 15.0
"""Seconds in which a run that listens takes a request; it looks twice a second."""
_WRITTEN_WITHIN = 120.0
"""Seconds past its length in which a capture is written."""
_LOOK_EVERY = 0.2


def ask_for_capture(
    folder: RunFolder, seconds: float, *, taken_within: float = TAKEN_WITHIN
) -> dict[str, Any]:
    """Have the process that runs `folder` make a capture of `seconds`; blocks until it is there.

    Its record, with `path` added. UserError in one line: seconds out of range, a run that does not
    run, one that answers nobody, a capture that goes on already or failed. Nothing is left of a
    request that nobody took.
    """
    if not SHORTEST <= seconds <= LONGEST:
        raise UserError(f"--seconds {seconds:g}: give {SHORTEST:g} to {LONGEST:g}")
    profile = folder.profile
    mailbox = Mailbox(profile)
    owner = mailbox.owner()
    locked = _is_locked(folder)
    _require_running(folder, owner, locked)
    try:
        name = mailbox.post(seconds)
    except OSError as error:
        raise RunError(
            f"{profile}: can't be written ({error.strerror}); ask as its owner"
        ) from None
    try:
        answer = _await(mailbox, name, folder, seconds, taken_within, watch_lock=locked)
    finally:
        mailbox.withdraw(name)
    if answer.capture is None:
        raise RunError(f"{folder.path}: {answer.words}")
    return {**answer.capture, "path": str(profile / str(answer.capture["folder"]))}


def _await(
    mailbox: Mailbox,
    name: str,
    folder: RunFolder,
    seconds: float,
    taken_within: float,
    *,
    watch_lock: bool,
) -> Answer:
    """The answer to the request `name`; RunError when none comes."""
    if not _until(lambda: not mailbox.waits(name), taken_within) and mailbox.withdraw(name):
        raise RunError(f"{folder.path}: {_nobody(mailbox.owner(), taken_within)}")
    found: list[Answer] = []

    def over() -> bool:
        # The lock first: what a run that ends has to say, it says before it lets go.
        ended = watch_lock and not _is_locked(folder)
        if answer := mailbox.collect(name):
            found.append(answer)
        return ended or bool(found)

    in_time = _until(over, seconds + _WRITTEN_WITHIN)
    if found:
        return found[0]
    if in_time:
        raise RunError(f"{folder.path}: the run ended before the capture was there")
    raise RunError(
        f"{folder.path}: the capture was begun, but is not written after "
        f"{seconds + _WRITTEN_WITHIN:g} s; look for it in {folder.profile} later"
    )


def _require_running(folder: RunFolder, owner: Owner | None, locked: bool) -> None:
    """RunError for a run that nobody runs. A lock is seen on its own machine alone."""
    if locked or (owner is not None and owner.boot != Owner.here().boot):
        return
    raise RunError(
        f"{folder.path}: it is not running, and only a running one has something to show; "
        f"go on with patchgym train --resume {folder.path.name}"
    )


def _nobody(owner: Owner | None, seconds: float) -> str:
    who = f"; last it was run by process {owner.pid} of {owner.host}" if owner else ""
    return f"nobody answered within {seconds:g} s, and the request was taken back{who}"


def _is_locked(folder: RunFolder) -> bool:
    """Whether a process of this machine runs `folder`, in whatever container."""
    try:
        handle = os.open(Path(folder.path, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether `true` became so within `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True
