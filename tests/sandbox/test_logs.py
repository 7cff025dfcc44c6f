"""swebench's log parsers: the real ones, without what they drag along; and what is said without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

UV = Path(sys.executable).with_name("uv")
PINNED = "swebench==5.0.2"
HEAVY = ("modal", "datasets", "docker", "swebench.harness.run_evaluation")
READ = """
import json, sys
from patchgym.sandbox.errors import SandboxUsageError
from patchgym.sandbox.testing import logs
told = {}
for name, text in json.loads(sys.argv[1]):
    try:
        told[name] = dict(logs.parse(name, text))
    except SandboxUsageError as error:
        told[name] = str(error)
told["heavy"] = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps(told))
"""


def told_by(site: Path | None, *logs: tuple[str, str]) -> dict[str, object]:
    """What a fresh interpreter reads out of logs, with `site` in its path."""
    import json

    code = f"import sys; sys.path.insert(0, {str(site)!r})\n{READ}" if site else READ
    block = "" if site else "import sys; sys.modules['swebench'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", block + code, json.dumps(logs), json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real package alone, without what it depends on."""
    folder = tmp_path_factory.mktemp("site")
    command = [str(UV), "pip", "install", "-q", "--no-deps", "--target", str(folder), PINNED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_real_parsers_and_nothing_else(site: Path) -> None:
    told = told_by(
        site,
        (
            "parse_log_pytest",
            "PASSED t.py::a\nFAILED t.py::b - x\nSKIPPED t.py::c\nERROR t.py::d\n",
        ),
        ("parse_log_django", "test_a (m.C) ... ok\ntest_b (m.C) ... FAIL\n"),
        ("parse_log_sympy", "test_a ok\ntest_b F\ntest_c E\n"),
        ("parse_log_xarray", "XFAIL t.py::a\nWEIRD t.py::b\n"),
        ("parse_log_jest_json", "{{"),
        ("parse_log_pytst", ""),
        ("parse_log_next", ""),
    )
    assert told.pop("heavy") == []
    assert told == {
        "parse_log_pytest": {
            "t.py::a": "passed",
            "t.py::b": "failed",
            "t.py::c": "skipped",
            "t.py::d": "error",
        },
        "parse_log_django": {"test_a (m.C)": "passed", "test_b (m.C)": "failed"},
        "parse_log_sympy": {"test_a": "passed", "test_b": "failed", "test_c": "error"},
        "parse_log_xarray": {"t.py::a": "passed"},
        "parse_log_jest_json": {},
        "parse_log_pytst": "no log parser 'parse_log_pytst' in swebench: "
        "did you mean parse_log_pytest?",
        "parse_log_next": "log parser parse_log_next needs to know the task: write a recipe",
    }


def test_an_older_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "swebench" / "harness").mkdir(parents=True)
    for name in ("swebench", "swebench/harness"):
        (tmp_path / name / "__init__.py").write_text("")
    told = told_by(tmp_path, ("parse_log_pytest", ""))
    assert "swebench 5 has it" in str(told["parse_log_pytest"])


def test_a_parser_that_breaks_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "swebench" / "harness" / "log_parsers"
    folder.mkdir(parents=True)
    (tmp_path / "swebench" / "__init__.py").write_text("")
    (folder.parent / "__init__.py").write_text("raise ImportError('heavy')")
    (folder / "__init__.py").write_text(
        "def broken(log, spec):\n    return spec.version\nPARSER_REGISTRY = {'broken': broken}\n"
    )
    assert told_by(tmp_path, ("broken", "PASSED x")) == {"broken": {}, "heavy": []}


def test_without_the_package_the_extra_is_named() -> None:
    told = told_by(None, ("parse_log_pytest", ""))
    assert "pip install 'patchgym[swebench]'" in str(told["parse_log_pytest"])
