"""One linter's part: its commands on both states, what it said, and what of that is new."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio
import anyio.to_thread

from patchgym.sandbox.container import Sandbox
from patchgym.sandbox.result import CommandResult

from .changes import ChangedFile, Changes
from .linter import SYNTAX, Edit, Linter, Problem, Reading, Tool, UnreadableOutput, first_complaint
from .matching import compare, touched_edits
from .report import LintReport, Skipped, Unformatted
from .trees import Tree

State = Literal["before", "after"]
STATES: tuple[State, State] = ("before", "after")
OUTPUT_LIMIT = 16 << 20  # bytes of a linter's output
WORDS_LIMIT = 96 << 10  # bytes of targets in one command
VERSION_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What is laid out in the sandbox."""

    folder: str = ""
    """Above all of it; see trees.py."""
    changes: Changes = field(default_factory=Changes)
    """What the diff changed."""
    linters: tuple[Linter, ...] = ()
    """Those that run."""
    trees: Mapping[str, Tree] = field(default_factory=dict)
    """What is in `before` and in `after`."""
    bare_trees: Mapping[str, Tree] = field(default_factory=dict)
    """The same for linters that take the files as they are."""
    no_files: str | None = None
    """Why there is nothing to run on."""
    no_project: str | None = None
    """Why there is no copy of the whole project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What all commands of a linter said, by state and path in the repository."""

    problems: Mapping[State, list[Problem]] = field(
        default_factory=lambda: {state: [] for state in STATES}
    )
    edits: Mapping[State, dict[str, tuple[Edit, ...]]] = field(
        default_factory=lambda: {state: {} for state in STATES}
    )
    unread: Mapping[State, dict[str | None, str]] = field(
        default_factory=lambda: {state: {} for state in STATES}
    )
    versions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Failed(Exception):
    """A linter gave no usable answer; `str()` is why."""


class Work:
    """One linter's part."""

    def __init__(self, sandbox: Sandbox, linter: Linter, ground: Ground, deadline: float) -> None:
        self._sandbox = sandbox
        self._linter = linter
        self._ground = ground
        self._deadline = deadline
        bare = linter.tool.layout == "bare"
        self._trees = ground.bare_trees if bare else ground.trees
        self._files = {
            file.path: file
            for file in ground.changes.files
            if linter.wants(file.path) and (bare or not file.steers)
        }

    async def report(self) -> LintReport:
        """What it newly finds."""
        tool = self._linter.tool
        if not self._files:
            return LintReport()
        began = anyio.current_time()
        versions: list[str] = []
        heard: _Heard | str = ""
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask_version, tool, versions)
            heard = await self._heard()
        if isinstance(heard, str):
            skipped = Skipped(tool=tool.name, path=None, reason=heard)
            return LintReport(skipped=(skipped,))
        versions += heard.versions
        judged = await anyio.to_thread.run_sync(self._judged, heard)
        return replace(
            judged,
            notes=tuple(heard.notes),
            versions={tool.name: versions[0]} if versions else {},
            seconds={tool.name: anyio.current_time() - began},
        )

    async def _ask_version(self, tool: Tool, versions: list[str]) -> None:
        if not tool.version_command:
            return
        result = await self._sandbox.run(
            tool.version_command,
            timeout=min(VERSION_SECONDS, self._left()),
            environment=self._environment(tool),
            cwd="/",
        )
        lines = result.stdout.text().split("\n")
        if result.ok and lines[0].strip():
            told = lines[0].strip().removeprefix(tool.version_command[0])
            versions.append(told.lstrip(", ")[:100])

    async def _heard(self) -> _Heard | str:
        """From the linter, or from its fallback; or why there is nothing from either."""
        try:
            return await self._run_all(self._linter)
        except _Failed as problem:
            reason = str(problem)
        fallback = self._linter.fallback
        if fallback is None or self._left() < 0.1:
            return reason
        try:
            heard = await self._run_all(fallback)
        except _Failed as problem:
            return str(problem)
        name = self._linter.tool.name
        heard.notes.append(f"{name} had to run in another way: {reason}")
        return heard

    async def _run_all(self, linter: Linter) -> _Heard:
        layout, heard = linter.tool.layout, _Heard()
        if layout == "project" and self._ground.no_project:
            raise _Failed(self._ground.no_project)
        for state in STATES if layout in ("each", "project") else (None,):
            folder = layout if layout in ("project", "bare") else "files"
            cwd = "/".join(filter(None, (self._ground.folder, folder, state)))
            targets = self._targets(state)
            for batch in _batches(targets) if layout != "project" else [targets] * bool(targets):
                reading = await self._run(linter, batch, cwd)
                await anyio.to_thread.run_sync(_hear, heard, reading, batch, cwd, state)
        return heard

    def _targets(self, state: State | None) -> list[str]:
        """Words for the command: relative to its folder, and none begins with a dash."""
        if state is None:
            laid = self._trees.items()
            return [f"{name}/{path}" for name, tree in laid for path in self._there(tree)]
        return [f"./{path}" for path in self._there(self._trees[state])]

    def _there(self, tree: Tree) -> list[str]:
        return [path for path in self._files if path in tree.files]

    async def _run(self, linter: Linter, targets: Sequence[str], cwd: str) -> Reading:
        tool = linter.tool
        limit = self._left()
        result = await self._sandbox.run(
            linter.command(targets, f"{self._ground.folder}/tools/{tool.name}"),
            timeout=limit,
            cwd=cwd,
            environment=self._environment(tool),
            output_limit=OUTPUT_LIMIT,
        )
        reason = _failure(tool, result, limit)
        if reason is not None:
            raise _Failed(reason)
        try:
            return await anyio.to_thread.run_sync(linter.read, result)
        except UnreadableOutput as problem:
            raise _Failed(str(problem)) from None
        except Exception as problem:  # a reader that stumbles over what untrusted code made
            raise _Failed(
                f"its output can't be read: {type(problem).__name__}: {problem}"[:300]
            ) from None

    def _environment(self, tool: Tool) -> dict[str, str]:
        """With a home of their own, what linters leave behind goes with the rest."""
        home = f"{self._ground.folder}/home"
        return {"HOME": home, "TMPDIR": home, **tool.environment}

    def _left(self) -> float:
        return max(self._deadline - anyio.current_time(), 0.001)

    def _judged(self, heard: _Heard) -> LintReport:
        name = self._linter.tool.name
        broken: dict[State, frozenset[str]] = {
            state: _unread(heard, state, self._files) for state in STATES
        }
        new, fixed = compare(
            self._files,
            heard.problems["before"],
            heard.problems["after"],
            tool=name,
            unread_before=broken["before"],
            unread_after=broken["after"],
        )
        skipped = [
            Skipped(tool=name, path=path, reason=reason)
            for path, reason in heard.unread["after"].items()
            if path is None or path in self._files
        ]
        return LintReport(
            new=tuple(new),
            fixed=tuple(fixed),
            formatting=tuple(self._unformatted(heard, broken)),
            unformatted_before=tuple(
                path
                for path, edits in heard.edits["before"].items()
                if edits and path in self._files
            ),
            skipped=tuple(skipped),
            files=tuple(self._files),
        )

    def _unformatted(
        self, heard: _Heard, broken: Mapping[State, Collection[str]]
    ) -> Iterator[Unformatted]:
        for path, file in self._files.items():
            if path in broken["after"] or path not in heard.edits["after"]:
                continue
            before = heard.edits["before"].get(path, ())
            ranges = touched_edits(file, before, heard.edits["after"][path])
            unknown = file.before is None or path in broken["before"]
            if ranges:
                yield Unformatted(
                    tool=self._linter.tool.name,
                    path=path,
                    ranges=ranges,
                    was_formatted=None if unknown else not before,
                    stands_in=self._linter.tool.stands_in,
                )


def _batches(targets: Sequence[str]) -> Iterator[list[str]]:
    """Lists that are no longer, as words, than a command may be."""
    batch: list[str] = []
    room = WORDS_LIMIT
    for target in targets:
        size = len(target.encode()) + 1
        if batch and size > room:
            yield batch
            batch, room = [], WORDS_LIMIT
        batch.append(target)
        room -= size
    if batch:
        yield batch


def _failure(tool: Tool, result: CommandResult, limit: float) -> str | None:
    """Why a command's output does not count."""
    if result.timed_out:
        return f"no answer within {limit:.1f} s"
    if result.exit_code in tool.exit_codes:
        return None
    if result.oom_killed:
        return "it ran out of memory"
    if result.exit_code in (126, 127):
        return f"it is not in the image: {first_complaint(result)}"
    end = f"signal {result.signal}" if result.exit_code is None else f"exit {result.exit_code}"
    return f"it failed ({end}): {first_complaint(result)}"


def _hear(
    heard: _Heard,
    reading: Reading,
    targets: Sequence[str],
    cwd: str,
    state: State | None,
) -> None:
    """Sort what was said by state and path; what is about other files is dropped."""
    asked = {_place(target, cwd, state) for target in targets}
    for problem in reading.problems:
        where, path = place = _place(problem.path, cwd, state)
        if place in asked:
            heard.problems[where].append(replace(problem, path=path))
    for each, edits in reading.edits.items():
        where, path = _place(each, cwd, state)
        heard.edits[where][path] = edits
    unread = {_place(each, cwd, state): reason for each, reason in reading.unread.items() if each}
    if reading.seen is not None:
        seen = {_place(each, cwd, state) for each in reading.seen}
        unread = dict.fromkeys(asked - seen, "it was not looked at") | unread
    for (where, path), reason in unread.items():
        heard.unread[where][path] = reason
    if None in reading.unread:
        for where in STATES if state is None else (state,):
            heard.unread[where][None] = reading.unread[None]
    if reading.version:
        heard.versions.append(reading.version)


def _place(path: str, cwd: str, state: State | None) -> tuple[State, str]:
    """State and path in the repository of what a linter calls `path`."""
    place = posixpath.relpath(posixpath.join(cwd, path), cwd)
    if state is not None:
        return state, place
    first, _, rest = place.partition("/")
    return ("before" if first == "before" else "after"), rest


def _unread(heard: _Heard, state: State, files: Mapping[str, ChangedFile]) -> frozenset[str]:
    """Files of which the linter did not see all."""
    told = heard.unread[state]
    broken = {each.path for each in heard.problems[state] if each.rule == SYNTAX}
    return frozenset(files if None in told else {*broken, *(path for path in told if path)})
