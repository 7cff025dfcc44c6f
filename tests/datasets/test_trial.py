"""What a trial puts back, and what it hands to a test runner."""

from __future__ import annotations

import pytest

from patchgym.datasets.trial import Change, is_runnable, is_test_configuration


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/test_a.py", True),
        ("src/a.test.ts", True),
        ("pkg/a_test.go", True),
        ("tests/conftest.py", False),
        ("tests/__init__.py", False),
        ("tests/data/a.json", False),
        ("tests/roots/test-x/index.rst", False),
    ],
)
def test_data_is_not_handed_to_runners(path: str, *, expected: bool) -> None:
    assert is_runnable(path) is expected


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("conftest.py", None, b"x = 1\n", True),
        ("a/b/conftest.py", b"x = 1\n", None, True),
        ("pytest.ini", b"[pytest]\n", b"[pytest]\naddopts = -x\n", True),
        ("setup.cfg", b"[metadata]\nversion = 1\n", b"[metadata]\nversion = 2\n", False),
        ("setup.cfg", b"[metadata]\n", b"[tool:pytest]\naddopts = -x\n", True),
        ("setup.cfg", b"[metadata]\n", b"not an ini file at all", True),
        ("tox.ini", b"[testenv]\n", b"[testenv]\ndeps = x\n", False),
        ("tox.ini", b"[testenv]\n", b"[pytest]\n", True),
        ("pyproject.toml", b"[project]\nname='a'\n", b"[project]\nname='b'\n", False),
        ("pyproject.toml", b"[tool.pytest.ini_options]\n", b"", True),
        ("src/conftest_like.py", b"", b"x", False),
    ],
)
def test_only_what_concerns_tests_is_put_back(
    path: str, before: bytes | None, after: bytes | None, *, expected: bool
) -> None:
    assert is_test_configuration(Change(path=path, before=before, after=after)) is expected
