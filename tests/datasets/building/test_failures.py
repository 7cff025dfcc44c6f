"""Why builds fail, told from logs that pip, uv, apt, npm and compilers really wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchgym.datasets.building import BuildFailure, classify
from patchgym.datasets.building.failures import ADVICE, classify_collection, packages_for

LOGS = Path(__file__).parent / "logs"
KINDS = {
    "apt-network": ("network", "Temporary failure resolving"),
    "apt-no-package": ("dependency_missing", "libnothing-of-this-name-dev"),
    "npm-conflict": ("dependency_conflict", "ERESOLVE"),
    "pip-conflict": ("dependency_conflict", "flask==3.0.0 and werkzeug<2"),
    "pip-disk": ("disk", "No space left on device"),
    "pip-header": ("system_library", "lber.h"),
    "pip-network": ("network", "name resolution"),
    "pip-no-distutils": ("compiler_missing", "distutils"),
    "pip-no-gcc": ("compiler_missing", "gcc"),
    "pip-no-python-h": ("compiler_missing", "Python.h"),
    "pip-no-version": ("dependency_missing", "pluggy==99"),
    "pip-old-python": ("dependency_missing", "numpy==99"),
    "pip-pg-config": ("system_library", "pg_config"),
    "pip-python-version": ("python_version", "2.3.0 Requires-Python"),
    "uv-conflict": ("dependency_conflict", "werkzeug<2"),
    "uv-network": ("network", "dns error"),
    "uv-no-distutils": ("compiler_missing", "distutils"),
    "uv-no-gcc": ("compiler_missing", "gcc"),
    "uv-python-version": ("python_version", "numpy==2.3.0"),
    "uv-too-new": ("dependency_missing", "flask<=1.0.2"),
}


def log(name: str) -> str:
    """One of the logs, as a build's log has it: after the command, with how it ended."""
    text = (LOGS / f"{name}.log").read_text()
    return f"tag on base\n\n$ true\n[exit code 0, 0.1 s]\n\n$ it\n{text}[exit code 1, 3.2 s]\n"


@pytest.mark.parametrize("name", KINDS)
def test_real_logs(name: str) -> None:
    kind, part = KINDS[name]
    found = classify(log(name))
    assert found.kind == kind, found
    assert part in found.line, found


def test_every_log_is_used() -> None:
    assert {path.stem for path in LOGS.iterdir()} == set(KINDS)


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("pip-pg-config", {"libpq-dev", "build-essential", "python3-dev"}),
        ("pip-header", {"libldap2-dev", "libsasl2-dev", "build-essential", "python3-dev"}),
        ("uv-no-gcc", {"build-essential", "python3-dev"}),
        ("pip-conflict", set()),
    ],
)
def test_packages_for_a_retry(name: str, packages: set[str]) -> None:
    text = log(name)
    assert set(packages_for(text, classify(text).kind)) == packages


def test_our_own_limits() -> None:
    assert classify("tag: not built within 1800 s; log: /x").kind == "timeout"
    assert classify("$ x\n[stopped at the recipe's timeout, 9.0 s]").kind == "timeout"
    full = "the Docker daemon's disk has 1.0 GB free, and a build needs 5.4 GB (disk_floor)"
    assert classify(full).kind == "disk"
    missing = "image python:3.13-bookworm is not here and no registry gives it"
    assert classify(missing) == type(classify(missing))(kind="python_version", line=missing)


def test_what_is_not_known_is_told_by_its_last_error() -> None:
    text = "\n$ x\nerror: invalid command 'bdist_wheel'\n[end of output]\nhint: See above.\n"
    assert classify(text).line == "error: invalid command 'bdist_wheel'"
    assert classify(text).kind == "unknown"
    assert classify("").line == "no output"


@pytest.mark.parametrize(
    ("printed", "kind", "line"),
    [
        (
            "ERROR collecting tests/test_a.py\nE   ModuleNotFoundError: No module named 'yaml'\n",
            "tests_not_collected",
            "E   ModuleNotFoundError: No module named 'yaml'",
        ),
        (
            "ERROR: usage: pytest\n__main__.py: error: unrecognized arguments: --cov=shop\n",
            "tests_not_collected",
            "__main__.py: error: unrecognized arguments: --cov=shop",
        ),
        (
            "E   ImportError: libpq.so.5: cannot open shared object file: No such file\n",
            "system_library",
            "E   ImportError: libpq.so.5: cannot open shared object file: No such file",
        ),
    ],
)
def test_what_keeps_tests_from_being_collected(printed: str, kind: str, line: str) -> None:
    found = classify_collection(printed)
    assert (found.kind, found.line) == (kind, line)


def test_a_failure_is_one_line_that_says_what_to_do() -> None:
    for kind, advice in ADVICE.items():
        failure = BuildFailure(kind, "the line", Path("/logs/a.log"))
        assert str(failure) == f"{kind}: the line; log: /logs/a.log; {advice}"
