"""A small library with one bug and its tests, and edits on it: the ground for patches in tests.

The bug: `mean` divides by one too many. `FAILING` fails because of it, `PASSING` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from patchgym.rewards.tampering import FileChange

Files = dict[str, bytes]
Edit = Callable[[Files], None]

ARITHMETIC = '''"""Arithmetic on lists of numbers."""


def total(values):
    """The sum."""
    result = 0
    for value in values:
        result += value
    return result


def mean(values):
    """The average; 0 of nothing."""
    if not values:
        return 0
    return total(values) / (len(values) + 1)


def clamp(value, low, high):
    """The nearest number in [low, high]."""
    return max(low, min(value, high))
'''
BUG = "    return total(values) / (len(values) + 1)\n"
FIX = "    return total(values) / len(values)\n"

REPORT = '''"""A report in plain text."""

import logging

from .arithmetic import mean, total

log = logging.getLogger(__name__)


class Line:
    """One line: a label and a number."""

    def __init__(self, label, value):
        self.label = label
        self.value = value

    def __eq__(self, other):
        if not isinstance(other, Line):
            return NotImplemented
        return self.label == other.label and self.value == other.value

    def __hash__(self):
        return hash((self.label, self.value))


def summary(values):
    """The lines of a report."""
    log.debug("summary of %d values", len(values))
    return [Line("total", total(values)), Line("mean", mean(values))]
'''

CLI = '''"""The command line."""

import sys

from .report import summary


def main(arguments):
    if not arguments:
        print("usage: calc NUMBER ...")
        sys.exit(2)
    for line in summary([float(each) for each in arguments]):
        print(f"{line.label}: {line.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
'''

TESTS = """import unittest

import pytest

from calc.arithmetic import clamp, mean, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_mean_of_two():
    assert mean([2, 4]) == 3


def test_mean_of_one():
    result = mean([5])
    assert result == 5


def test_mean_of_nothing():
    assert mean([]) == 0


@pytest.mark.parametrize("value, expected", [(-1, 0), (5, 5), (11, 10)])
def test_clamp(value, expected):
    assert clamp(value, 0, 10) == expected


class TestMean(unittest.TestCase):
    def test_mean_is_between(self):
        self.assertEqual(mean([1, 3]), 2)
"""

REPORT_TESTS = """from calc.report import Line, summary


def test_summary(numbers):
    assert summary(numbers) == [Line("total", 6), Line("mean", 2)]


def test_lines_differ():
    assert Line("total", 6) != Line("total", 7)
"""

CONFTEST = """import pytest


@pytest.fixture
def numbers():
    return [1, 2, 3]
"""

BASE: Mapping[str, bytes] = {
    path: text.encode()
    for path, text in {
        "calc/__init__.py": '"""Small sums."""\n\n__version__ = "1.0"\n',
        "calc/arithmetic.py": ARITHMETIC,
        "calc/report.py": REPORT,
        "calc/cli.py": CLI,
        "tests/conftest.py": CONFTEST,
        "tests/test_arithmetic.py": TESTS,
        "tests/test_report.py": REPORT_TESTS,
        "web/price.test.js": "test('adds', () => {\n  expect(1 + 1).toBe(2);\n});\n",
        "bin/test": '#!/bin/sh\nexec python3 -m pytest "$@"\n',
        "Makefile": "build:\n\tpython3 -m build\n\ntest:\n\tpython3 -m pytest tests\n",
        "noxfile.py": (
            "import nox\n\n\n@nox.session\ndef tests(session):\n"
            '    session.install("pytest")\n    session.run("pytest", "tests")\n'
        ),
        "package.json": (
            '{\n  "name": "calc-web",\n  "version": "1.0.0",\n'
            '  "scripts": {"build": "tsc", "test": "jest"}\n}\n'
        ),
        "pyproject.toml": (
            '[project]\nname = "calc"\nversion = "1.0"\ndependencies = ["attrs"]\n\n'
            '[tool.pytest.ini_options]\ntestpaths = ["tests"]\npythonpath = ["."]\n'
        ),
        "setup.cfg": "[metadata]\nname = calc\n\n[flake8]\nmax-line-length = 99\n",
        "setup.py": 'from setuptools import setup\n\nsetup(name="calc", packages=["calc"])\n',
        "tox.ini": "[tox]\nenvlist = py311\n\n[testenv]\ndeps = pytest\ncommands = pytest tests\n",
        ".gitattributes": "*.png binary\n",
        "README.md": "# calc\n",
    }.items()
}
TEST_FILES = ("tests/conftest.py", "tests/test_arithmetic.py", "tests/test_report.py")
FAILING = (
    "tests/test_arithmetic.py::test_mean_of_two",
    "tests/test_arithmetic.py::test_mean_of_one",
    "tests/test_arithmetic.py::TestMean::test_mean_is_between",
    "tests/test_report.py::test_summary",
)
PASSING = (
    "tests/test_arithmetic.py::test_total",
    "tests/test_arithmetic.py::test_mean_of_nothing",
    "tests/test_report.py::test_lines_differ",
)


def put(path: str, content: str | bytes) -> Edit:
    """Write a whole file."""

    def edit(files: Files) -> None:
        files[path] = content.encode() if isinstance(content, str) else content

    return edit


def drop(path: str) -> Edit:
    """Delete a file."""

    def edit(files: Files) -> None:
        del files[path]

    return edit


def move(path: str, target: str) -> Edit:
    """Give a file another path."""

    def edit(files: Files) -> None:
        files[target] = files.pop(path)

    return edit


def swap(path: str, old: str, new: str) -> Edit:
    """Replace a text that is there."""

    def edit(files: Files) -> None:
        text = files[path].decode()
        assert old in text, f"{path} has no {old!r}"
        files[path] = text.replace(old, new, 1).encode()

    return edit


def first(path: str, text: str) -> Edit:
    """Write above what is there."""

    def edit(files: Files) -> None:
        files[path] = text.encode() + files[path]

    return edit


def last(path: str, text: str) -> Edit:
    """Write below what is there."""

    def edit(files: Files) -> None:
        files[path] += text.encode()

    return edit


def edited(edits: Sequence[Edit]) -> Files:
    """The base repository with the edits."""
    files = dict(BASE)
    for edit in edits:
        edit(files)
    return files


def changes(
    before: Mapping[str, bytes], after: Mapping[str, bytes], modes: Mapping[str, str]
) -> tuple[FileChange, ...]:
    """What a diff between the two trees changes; a path whose mode is given counts as changed."""
    return tuple(
        FileChange(
            path=path,
            before=before.get(path),
            after=after.get(path),
            mode=modes.get(path, "100644"),
        )
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path) or path in modes
    )
