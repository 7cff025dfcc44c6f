"""The run that an address names, opened for one request; and what is said where that can't be."""

from __future__ import annotations

import sqlite3
import time
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.errors import RunError
from patchgym.trainer.heartbeat import state_now
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.run_folder import RunFolder, list_runs
from patchgym.trainer.sft import is_supervised

_TICK = 0.05
"""Seconds; no file system's clock is coarser, but for some of other machines."""

Kind: TypeAlias = Literal["training", "evaluation", "supervised"]


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run, open for reading; a context manager, for the thread that opened it."""

    folder: RunFolder
    reader: LedgerReader
    kind: Kind

    def __enter__(self) -> OpenRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.reader.__exit__(*exception)

    @property
    def name(self) -> str:
        """As in addresses."""
        return self.folder.path.name

    @cached_property
    def state(self) -> str:
        """running, finished, stopped, failed, unknown; or `gone since ...`, `silent since ...`."""
        return state_now(self.folder, self.reader.meta("state", "unknown"))

    @cached_property
    def end(self) -> dict[str, Any] | None:
        """Why it ended, as `supervision.End` has it; None of a run that goes on, or an old one."""
        found: dict[str, Any] | None = self.reader.meta("end")
        return found if self.reader.meta("state") != "running" else None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Sections of run.toml, unchecked: runs of other versions have other keys. Empty when it
        can't be read."""
        try:
            return tomllib.loads(self.folder.config.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def has_table(self, name: str) -> bool:
        """Whether the ledger has a table of that name (yet)."""
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self.reader.rows(sql, (name,)))

    @property
    def old(self) -> bool:
        """Its ledger is of an older version, which kept less."""
        return self.reader.version < 2


def open_run(request: Request) -> OpenRun:
    """The run in the address of `request` (path parameter `run`), for the present thread.

    What goes wrong becomes a page: 404 for a run that is not there, RunError for one that can't be
    read (a newer version, damage), which `pages` turns into a page too.
    """
    return open_named(request.app.state.root, request.path_params["run"])


def open_named(root: Path, name: str) -> OpenRun:
    """The run called `name` in `root`; HTTPException and RunError as in `open_run`."""
    folder = named(root, name)
    if not folder.ledger.is_file():
        raise HTTPException(404, f"{name}: its folder is there, its ledger is not (yet)")
    return open_folder(folder)


def open_folder(folder: RunFolder) -> OpenRun:
    """The run in `folder`; RunError when its ledger can't be read."""
    return OpenRun(folder=folder, reader=LedgerReader(folder.ledger), kind=kind_of(folder))


def named(root: Path, name: str) -> RunFolder:
    """The folder of the run called `name` in `root`; 404 when there is none."""
    if name == "latest":
        known = runs_in(root)
        if known:
            return known[-1]
    path = root / name
    # A name is one step below the root, and no way out of it.
    if Path(name).name != name or "\0" in name or not (path / "run.toml").is_file():
        raise HTTPException(404, f"there is no run {name!r} in {root}")
    return RunFolder(path.resolve())


def runs_in(root: Path) -> list[RunFolder]:
    """The runs in `root` whose names can stand in an address, oldest first; RunError when it can't
    be read."""
    try:
        return [folder for folder in list_runs(root) if _is_text(folder.path.name)]
    except OSError as error:
        raise RunError(f"{root}: can't be read: {error.strerror}; load the page again") from None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def signature(folder: RunFolder) -> str:
    """Changes whenever something was written to the run's ledger (and, just after, for no reason).

    A write in the same tick of the clock would leave the file's time as it is: a file that was
    written this very moment has no signature twice.
    """
    found: list[str] = []
    for name in (folder.ledger.name, f"{folder.ledger.name}-wal"):
        try:
            known = (folder.path / name).stat()
        except OSError:
            found.append("0")
            continue
        fresh = time.time() - known.st_mtime < _TICK
        found.append(f"{known.st_mtime_ns:x}.{known.st_size:x}{time.time_ns() if fresh else ''}")
    return "-".join(found)


def kind_of(folder: RunFolder) -> Kind:
    """What kind of run a folder is of."""
    if is_evaluation(folder):
        return "evaluation"
    return "supervised" if is_supervised(folder) else "training"


def is_busy(error: sqlite3.Error) -> bool:
    """The writer kept us waiting; the next try will do."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )
