"""The survey: which tests pass each time, how long they take, and which lines each of them runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TypedDict

import anyio.to_thread

from patchgym.datasets.task import TaskError
from patchgym.sandbox import Sandbox, SandboxUsageError
from patchgym.sandbox.testing.launch import fill

from .ground import Ground

FOLDER = "/tmp/patchgym-survey"
PLAIN_RUNS = 2
TEST_FILE = re.compile(r"test_[^/]*\.py|[^/]*_tests?\.py|tests?\.py")
NOT_CODE = re.compile(
    r"(^|/)(tests?|testing|docs?|examples?|benchmarks?|bench|scripts|tools|_?vendor(ed)?|"
    r"conftest\.py|setup\.py|noxfile\.py|fabfile\.py|tasks\.py|_?version\.py)(/|$)"
)


@dataclass(frozen=True, kw_only=True)  # without slots, as it keeps what it has counted
class Survey:
    """What the tests do without any bug."""

    tests: Mapping[str, float]
    """Tests that passed in every run, in order, and the seconds that each took at most."""
    unstable: tuple[str, ...]
    """Those that did not."""
    lines: Mapping[str, Mapping[int, tuple[str, ...]]]
    """By file and line, the tests that run it."""

    def covering(self, path: str, lines: tuple[int, int]) -> frozenset[str]:
        """The tests that run any of these lines of a file, first and last given."""
        by_line = self.lines.get(path, {})
        first, last = lines
        found = (by_line.get(line, ()) for line in range(first, last + 1))
        return frozenset(test for tests in found for test in tests)

    @cached_property
    def reach(self) -> Mapping[str, int]:
        """Lines that each test runs: the fewer, the closer it is to what it tests."""
        count = dict.fromkeys(self.tests, 0)
        for by_line in self.lines.values():
            for tests in by_line.values():
                for test in tests:
                    count[test] += 1
        return count


def test_files(paths: Sequence[str]) -> tuple[str, ...]:
    """The files that pytest finds tests in, by their names."""
    return tuple(path for path in sorted(paths) if TEST_FILE.fullmatch(PurePosixPath(path).name))


def code_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Python files that are neither tests, nor documentation, nor for building."""
    tests = set(test_files(paths))
    return tuple(
        path
        for path in sorted(paths)
        if path.endswith(".py") and path not in tests and not NOT_CODE.search(path)
    )


async def survey(plain: Ground, traced: Ground) -> Survey:
    """Run all tests once with coverage and twice without, each time in a fresh sandbox.

    Raises TaskError when no test passes.
    """
    found = test_files(await anyio.to_thread.run_sync(plain.origin.paths))
    if not found:
        raise TaskError(f"{plain.origin.name}: no test files in it: pytest finds test_*.py")
    first = await _run(traced, found, trace=True)
    runs = [first, *[await _run(plain, found, trace=False) for _ in range(PLAIN_RUNS)]]
    known = sorted(set().union(*(run["tests"] for run in runs)))
    stable = [
        test
        for test in known
        if all(run["tests"].get(test, ("missing", 0.0))[0] == "passed" for run in runs)
    ]
    if not stable:
        raise TaskError(f"{plain.origin.name}: no test passes in this environment: give a recipe")
    seconds = {test: max(run["tests"][test][1] for run in runs[1:]) for test in stable}
    return Survey(
        tests=seconds,
        unstable=tuple(test for test in known if test not in seconds),
        lines=_lines(first, seconds),
    )


class _Written(TypedDict):
    """What the plugin writes; see contexts.py."""

    tests: dict[str, tuple[str, float]]
    order: list[str]
    lines: dict[str, dict[str, list[int]]]


def _lines(run: _Written, stable: Mapping[str, float]) -> dict[str, dict[int, tuple[str, ...]]]:
    order = run["order"]
    return {
        path: {
            int(line): tuple(order[number] for number in numbers if order[number] in stable)
            for line, numbers in by_line.items()
        }
        for path, by_line in run["lines"].items()
    }


async def _run(ground: Ground, found: Sequence[str], *, trace: bool) -> _Written:
    """One run of everything under our plugin, and what that wrote."""
    environment = ground.environment
    async with ground.sandbox() as sandbox:
        plugin = (files("patchgym.datasets.injection") / "contexts.py").read_bytes()
        await sandbox.write(f"{FOLDER}/patchgym_contexts.py", plugin)
        command = environment.test_command or "python3 -m pytest -q {test_files}"
        variables = {
            **environment.variables,
            "PYTEST_PLUGINS": "patchgym_contexts",
            "PYTHONPATH": _joined(FOLDER, environment.variables.get("PYTHONPATH", "")),
            "PYTEST_ADDOPTS": f"--rootdir={ground.image.workdir} -p no:cacheprovider",
            "PATCHGYM_SURVEY": f"{FOLDER}/survey.json",
            **({"PATCHGYM_TRACE": "1"} if trace else {}),
        }
        # A file that can't be loaded must not hide the others.
        words = fill(command, files=found, ids=found) + " --continue-on-collection-errors"
        timeout = environment.timeout * (4 if trace else 1)
        result = await sandbox.run(words, timeout=timeout, environment=variables)
        return await _read(sandbox, ground, result.stdout.text() + result.stderr.text())


def _joined(*folders: str) -> str:
    return ":".join(folder for folder in folders if folder)


async def _read(sandbox: Sandbox, ground: Ground, printed: str) -> _Written:
    try:
        written = await sandbox.read(f"{FOLDER}/survey.json")
    except SandboxUsageError as error:
        last = (printed.strip().splitlines() or ["nothing printed"])[-1]
        raise TaskError(
            f"{ground.origin.name}: pytest did not run to its end ({last}): "
            "give a recipe in which its tests run"
        ) from error
    found: _Written = json.loads(written)
    return found
