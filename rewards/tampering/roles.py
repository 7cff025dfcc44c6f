"""What part a file plays: library, script, test, support of tests, conftest, test framework."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from .base import FileChange

Role = Literal["library", "script", "test", "support", "conftest", "framework"]

TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "e2e"})
_TEST_NAME = re.compile(
    r"(test_.*|.*_tests?|tests?)\.py"
    r"|.*[._-](test|spec)\.[cm]?[jt]sx?"
    r"|.*_test\.(go|cc|cpp|dart|exs)|.*(Test|Tests|IT|Spec)\.(java|kt|scala|groovy|cs|php)"
    r"|.*_(spec|test)\.rb"
)
_SCRIPT_FOLDERS = frozenset(
    {"bin", "scripts", "script", "tools", "examples", "example", "docs", "doc", "benchmarks",
     "release", "ci", "build_tools", "tutorials", "demo", "demos", ".ci", ".github"}
)  # fmt: skip
_FRAMEWORK_FOLDERS = frozenset(
    {"_pytest", "pytest", "unittest", "pluggy", "nose", "testing", "_testing", "hypothesis"}
)
_RUNNERS = frozenset({"runtests.py", "runner.py", "pytest.py", "command.py", "randtest.py"})
_RUNNER_HOMES = frozenset({"", "bin", "scripts", "script", "tools", "tests", "test", "ci"})
_USES_FRAMEWORK = re.compile(
    rb"^[ \t]*(?:import|from)[ \t]+(?:_?pytest|unittest|doctest|pluggy|nose|py)\b"
    rb"|\bdef pytest_\w+|\bclass \w*Test(?:Runner|Case|Suite|Result)\b",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known of the task and of the change as a whole."""

    test_files: frozenset[str]
    """Trusted test paths."""
    test_names: frozenset[str]
    """Bare names of the task's test functions."""
    frameworks: frozenset[str]
    """Folders of test frameworks that the project itself already has."""
    existing: frozenset[str]
    """Changed paths that were there before, by their new names."""

    def role(self, change: FileChange) -> Role:
        """The part that the file plays in the new tree."""
        return self.role_of(change.path)

    def role_of(self, path: str) -> Role:
        """The part that a file at that path plays."""
        folder, _, name = path.rpartition("/")
        if name == "conftest.py":
            return "conftest"
        if path in self.test_files:
            return "test"
        if folder in self.frameworks and not name.startswith("test_"):
            return "framework"
        if is_test_path(path):
            return "test" if _TEST_NAME.fullmatch(name) else "support"
        parts = folder.split("/")
        if path in self.existing and {"testing", "_testing"} & set(parts):
            return "support"  # a project's tools for tests; a new file can't make itself one
        if not name.endswith(".py") or parts[0] in _SCRIPT_FOLDERS:
            return "script"
        return "script" if name in ("setup.py", "__main__.py", "noxfile.py") else "library"

    def holds_tests(self, path: str) -> bool:
        """Whether that path is one of tests."""
        return self.role_of(path) in ("test", "conftest")


def set_scene(
    changes: Sequence[FileChange], test_files: Collection[str], tests: Collection[str]
) -> Scene:
    """Look at the task and at the whole change."""
    names = {test.rpartition("::")[2].partition("[")[0].rpartition(" ")[2] for test in tests}
    return Scene(
        test_files=frozenset(test_files),
        test_names=frozenset(name for name in names if re.fullmatch(r"[Tt]est\w{3,}", name)),
        frameworks=frozenset(
            (change.old_path or change.path).rpartition("/")[0]
            for change in changes
            if _is_framework(change)
        ),
        existing=frozenset(change.path for change in changes if change.before is not None),
    )


def is_test_path(path: str) -> bool:
    """A test, or something in a folder of tests."""
    *folders, name = path.split("/")
    if any(folder in TEST_FOLDERS for folder in folders):
        return True
    return bool(_TEST_NAME.fullmatch(name)) and name not in ("test.py", "tests.py")


def is_runner(path: str) -> bool:
    """A script that people start to run the tests."""
    folder, _, name = path.rpartition("/")
    if folder == "bin":
        return name in ("test", "doctest", "runtests", "test.py")
    known = ("runtests.py", "run_tests.py", "runtest.py", "run_tests.sh", "runtests.sh", "test.sh")
    if folder in _RUNNER_HOMES and name in (*known, "run-tests.sh", "run-tests.py", "runtests"):
        return True
    return name == "manage.py" and folder == ""


def _is_framework(change: FileChange) -> bool:
    """Existing code of a test framework: a new file can't make its own folder one."""
    if change.before is None:
        return False
    path = change.old_path or change.path
    *folders, name = path.split("/")
    if not name.endswith(".py") or name == "conftest.py" or is_runner(path):
        return False
    inside = any(folder in _FRAMEWORK_FOLDERS for folder in folders)
    inside = inside or folders[-2:] == ["django", "test"] or "django/test/" in path
    inside = inside or (bool(folders) and name in _RUNNERS)
    return inside and bool(_USES_FRAMEWORK.search(change.before))
