"""Trials: a task's tests on a diff, in a fresh sandbox with the trusted files put back.

    lease ─► base commit ─► the diff ─► trusted tests and test configuration put back ─► tests

What the diff changed is read before anything of it runs, so that it can be inspected.
"""

from __future__ import annotations

import configparser
import re
import time
import tomllib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from patchgym.sandbox import (
    AppliedPatch,
    Pool,
    Sandbox,
    SandboxError,
    SandboxUsageError,
    TestReport,
    run_tests,
    snapshot,
)
from patchgym.sandbox.patch import new_modes

from .cache import repositories_dir
from .images import TaskImage
from .repository import materialize, read_files, trusted_files
from .task import Task

TIMEOUT = 60.0  # seconds for a test run of a task without an environment
LINK = "120000"  # git's mode of a symlink
READ_LIMIT = 500  # changed files that are read for inspection
DATA = (
    *(".json", ".yml", ".yaml", ".toml", ".xml", ".csv", ".txt", ".md", ".rst", ".html", ".css"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".pkl", ".npy", ".npz", ".fits", ".gz"),
    *(".cfg", ".ini", ".snap", ".lock", ".dat", ".bin", ".zip"),
)
CONFIGURATION = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")


class Images(Protocol):
    """Where tasks' images come from; `datasets.images.TaskImages` is such."""

    async def prepare(self, task: Task) -> TaskImage | None:
        """The image to lease with, made when missing; None for the pool's own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConfig:
    """How trials are made."""

    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories."""
    images: Images | None = None
    """None: all tasks run in the pool's own image, or in that which they name."""
    timeout: float | None = None
    """Seconds for one run of the tests; None: the environment's, or 60."""
    per_test_timeout: float | None = None
    """Seconds for each test."""
    lease_timeout: float = 120.0
    """Seconds to wait for a sandbox."""


_Trusted = tuple[Mapping[str, bytes | None], Mapping[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that a diff changed."""

    path: str
    before: bytes | None
    """At the base commit; None: it was not there."""
    after: bytes | None
    """With the diff; None: it is not there any more. A symlink's is its target."""
    mode: str | None = None
    """Git's mode, where the diff sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What all trials of one task have in common."""

    task: Task
    pool: Pool
    config: TrialConfig
    folder: Path
    trusted: Mapping[str, bytes | None]
    """Trusted files as they must be during the tests; None: not there."""
    base: Mapping[str, bytes | None]
    """The same files at the base commit."""
    image: TaskImage | None
    """None: the pool's own, or that which the task names."""

    @classmethod
    async def of(cls, task: Task, pool: Pool, config: TrialConfig) -> Trial:
        """Raises TaskError when the repository can't be used, ImageError for the image."""
        folder = await anyio.to_thread.run_sync(materialize, task, config.repositories)
        trusted, base = await anyio.to_thread.run_sync(_trusted, task, folder)
        image = await config.images.prepare(task) if config.images else None
        return cls(
            task=task,
            pool=pool,
            config=config,
            folder=folder,
            trusted=trusted,
            base=base,
            image=image,
        )

    @asynccontextmanager
    async def prepared(self, diff: bytes) -> AsyncIterator[Prepared]:
        """A fresh sandbox that is ready for the tests. Raises PatchError, SandboxError."""
        clock = _Clock()
        if self.image is None or self.image.snapshot is None:
            await snapshot(self.folder, self.task.base_commit)  # before a sandbox waits for it
        async with self._lease() as sandbox:
            clock.lap("lease")
            if self.image is not None and self.image.snapshot is not None:
                sandbox.use_workdir(self.image.workdir)
            else:
                await sandbox.checkout(self.folder, self.task.base_commit)
            clock.lap("checkout")
            applied = await sandbox.apply_patch(diff)
            clock.lap("patch")
            changes = await self._changes(sandbox, applied, new_modes(diff))
            restored = await self._restore(sandbox, changes)
            clock.lap("restore")
            yield Prepared(
                trial=self,
                sandbox=sandbox,
                applied=applied,
                changes=changes,
                restored=restored,
                timings=clock.laps,
            )

    def _lease(self) -> AbstractAsyncContextManager[Sandbox]:
        image, ready = self.task.image, None
        if self.image is not None:
            image, ready = self.image.tag, self.image.snapshot
        return self.pool.lease(
            timeout=self.config.lease_timeout,
            borrower=self.task.id,
            image=None if ready else image,
            snapshot=ready,
        )

    async def _changes(
        self, sandbox: Sandbox, applied: AppliedPatch, modes: Mapping[str, str]
    ) -> tuple[Change, ...]:
        paths = applied.paths[:READ_LIMIT]
        commit = self.task.base_commit
        before = await anyio.to_thread.run_sync(read_files, self.folder, commit, paths)
        gone = {file.path for file in applied.files if file.change == "deleted"}
        changes = []
        for path in paths:
            mode = modes.get(path)
            after = None if path in gone else await _read(sandbox, path, link=mode == LINK)
            changes.append(Change(path=path, before=before[path], after=after, mode=mode))
        return tuple(changes)

    async def _restore(self, sandbox: Sandbox, changes: Sequence[Change]) -> tuple[str, ...]:
        """Put trusted files and test configuration back; the paths that the diff had changed."""
        restored = []
        present = {change.path: change.after for change in changes}
        for path, data in self.trusted.items():
            now = present.get(path, self.base[path])
            if path in present and now != data and now != self.base[path]:
                restored.append(path)
            if now != data:
                await _put(sandbox, path, data, clear=path in present)
        for change in changes:
            if change.path not in self.trusted and is_test_configuration(change):
                await _put(sandbox, change.path, change.before, clear=True)
                restored.append(change.path)
        return tuple(sorted(restored))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sandbox with the base commit, the diff, and the trusted files on top."""

    trial: Trial
    sandbox: Sandbox
    applied: AppliedPatch
    changes: tuple[Change, ...]
    """What the diff did, before anything was put back; at most 500 files."""
    restored: tuple[str, ...]
    """Trusted files and test configuration that the diff had changed."""
    timings: dict[str, float]
    """Wall seconds by phase."""

    async def run(
        self, tests: Sequence[str] | None = None, *, reruns: int = 0, order: int | None = None
    ) -> TestReport:
        """Run the task's tests, or some of them; with `order`, shuffled by that seed."""
        task, config = self.trial.task, self.trial.config
        environment = task.environment
        started = time.monotonic()
        own = config.timeout or (environment.timeout if environment else TIMEOUT)
        report = await run_tests(
            self.sandbox,
            test_ids=task.tests if tests is None else tests,
            timeout=own,
            per_test_timeout=config.per_test_timeout,
            lean=task.files is not None,  # a real repository may need pytest's every plugin
            command=environment.command if environment else None,
            test_files=[
                path
                for path in task.test_files
                if self.trial.trusted.get(path) is not None and is_runnable(path)
            ],
            reruns=reruns,
            order=order,
        )
        self.timings["tests"] = self.timings.get("tests", 0.0) + time.monotonic() - started
        return report


_KNOWN: OrderedDict[tuple[str, str], _Trusted] = OrderedDict()
_KEEP = 256  # tasks


def _trusted(task: Task, folder: Path) -> _Trusted:
    """Trusted files as they must be, and as they are at the base commit; read once a task."""
    key = (task.content, str(folder))
    found = _KNOWN.get(key)
    if found is None:
        trusted = trusted_files(task, folder)
        found = trusted, read_files(folder, task.base_commit, tuple(trusted))
        _KNOWN[key] = found
        while len(_KNOWN) > _KEEP:
            _KNOWN.popitem(last=False)
    return found


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._last = now - self._last, now


async def _read(sandbox: Sandbox, path: str, *, link: bool) -> bytes | None:
    if link:
        target = await sandbox.run(["readlink", "-n", "--", path], timeout=30)
        return target.stdout.head if target.ok else None
    try:
        return await sandbox.read(path)
    except SandboxUsageError:  # a link, or gone
        return None


async def _put(sandbox: Sandbox, path: str, data: bytes | None, *, clear: bool) -> None:
    """Write a file, or remove it; with `clear`, whatever the diff put in its place goes first."""
    if clear or data is None:
        result = await sandbox.run(["rm", "-rf", "--", path], timeout=30)
        if not result.ok:
            raise SandboxError(f"could not remove {path}: {result.stderr.text().strip()}")
    if data is not None:
        await sandbox.write(path, data)


def is_runnable(path: str) -> bool:
    """Whether a test runner takes the file, or it is data, a fixture or a package's mark."""
    name = path.rpartition("/")[2]
    return not name.endswith(DATA) and name not in ("conftest.py", "__init__.py")


def is_test_configuration(change: Change) -> bool:
    """Whether a diff changed how tests are found and run: pytest's files, or its sections."""
    name = change.path.rpartition("/")[2]
    if name in CONFIGURATION:
        return True
    reader = {"setup.cfg": _ini, "tox.ini": _ini, "pyproject.toml": _toml}.get(name)
    return reader is not None and reader(change.before) != reader(change.after)


def _ini(data: bytes | None) -> object:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string((data or b"").decode("utf-8", "replace"))
    except configparser.Error:
        return data
    wanted = [name for name in parser.sections() if re.search(r"pytest|unittest", name)]
    return {name: dict(parser.items(name, raw=True)) for name in wanted}


def _toml(data: bytes | None) -> object:
    try:
        tables = tomllib.loads((data or b"").decode("utf-8", "replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return data
    return tables.get("tool", {}).get("pytest")
