"""Requests for captures, and their answers, as files in the run's folder.

    profile/owner.json              which process of which machine listens
    profile/requests/ID.json        asked; renamed when it is taken, removed when it is withdrawn
    profile/requests/ID.taken       the capture is being made
    profile/requests/ID.answer      what came of it

Files work from other containers and, over shared disks, from other machines, where signals don't.
Each is written beside its place and renamed. Taking is a rename and withdrawing a removal of the
same file, so that exactly one of the two happens.
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from patchgym.trainer.json_file import read_json, write_json

State: TypeAlias = Literal["done", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that makes a run's captures."""

    host: str
    """Name of its machine, for people."""
    boot: str
    """Tells machines apart; containers of one machine have the same."""
    pid: int
    """Its number there."""

    @staticmethod
    def here() -> Owner:
        """This process."""
        return Owner(host=socket.gethostname(), boot=_boot(), pid=os.getpid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a request."""

    state: State
    """`refused` made no capture; `failed` tried."""
    words: str
    """Why, where it was not done."""
    capture: dict[str, Any] | None
    """The record of the capture, where it was."""


class Mailbox:
    """Both sides of the exchange; every call blocks for as long as the disk takes."""

    def __init__(self, profile: Path) -> None:
        """`profile` is the folder of a run's captures."""
        self._owner = profile / "owner.json"
        self._requests = profile / "requests"

    def open(self) -> None:
        """The run's side: say who listens, and forget what an earlier process left."""
        shutil.rmtree(self._requests, ignore_errors=True)
        self._requests.mkdir(parents=True)
        write_json(self._owner, asdict(Owner.here()))

    def close(self) -> None:
        """The run's side: nobody listens from now on."""
        self._owner.unlink(missing_ok=True)

    def take(self) -> dict[str, float | None]:
        """The run's side: seconds by id of the requests that came; None for one that says none."""
        taken: dict[str, float | None] = {}
        for path in sorted(self._requests.glob("*.json")):
            with suppress(FileNotFoundError):  # it was withdrawn this moment
                claimed = path.rename(path.with_suffix(".taken"))
                seconds = (read_json(claimed) or {}).get("seconds")
                taken[path.stem] = float(seconds) if isinstance(seconds, int | float) else None
        return taken

    def answer(self, name: str, answer: Answer) -> None:
        """The run's side: say what came of the request `name`."""
        write_json(self._requests / f"{name}.answer", asdict(answer))
        (self._requests / f"{name}.taken").unlink(missing_ok=True)

    def owner(self) -> Owner | None:
        """Who listens, or listened when it was killed."""
        record = read_json(self._owner)
        try:
            return None if record is None else Owner(**record)
        except TypeError:
            return None

    def post(self, seconds: float) -> str:
        """Ask for a capture; the request's id. OSError where the folder can't be written."""
        self._requests.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        write_json(self._requests / f"{name}.json", {"seconds": seconds})
        return name

    def withdraw(self, name: str) -> bool:
        """Take a request back; false when it was taken already."""
        try:
            (self._requests / f"{name}.json").unlink()
        except FileNotFoundError:
            return False
        return True

    def waits(self, name: str) -> bool:
        """Whether a request was not taken yet."""
        return (self._requests / f"{name}.json").exists()

    def collect(self, name: str) -> Answer | None:
        """The answer to a request, which is then removed; None as long as there is none."""
        path = self._requests / f"{name}.answer"
        record = read_json(path)
        if record is None:
            return None
        path.unlink(missing_ok=True)
        return Answer(**record)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
