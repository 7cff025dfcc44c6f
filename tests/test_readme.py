"""The README's Python examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.model, pytest.mark.slow]


def examples(root: Path) -> dict[str, str]:
    """Python blocks of the README by the heading they stand under."""
    found: dict[str, str] = {}
    heading = ""
    pattern = r"^(?:### (?P<heading>[^\n]+)|```python\n(?P<code>.*?)^```)"
    for match in re.finditer(pattern, (root / "README.md").read_text(), re.M | re.S):
        if match["heading"]:
            heading = match["heading"]
        else:
            found[heading] = match["code"]
    return found


def run(code: str, root: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_one_for_each_use(root: Path) -> None:
    names = list(examples(root))
    assert names == ["Train", "Evaluate patches", "The sandbox alone"]
    for code in examples(root).values():
        assert sum(bool(line.strip()) for line in code.splitlines()) <= 10


def test_evaluate(root: Path, docker_image: str, clean_environment: dict[str, str]) -> None:
    printed = run(examples(root)["Evaluate patches"], root, clean_environment)
    assert printed.count("resolved") == 3
    assert "unresolved" not in printed


def test_sandbox_alone(root: Path, docker_image: str, clean_environment: dict[str, str]) -> None:
    printed = run(examples(root)["The sandbox alone"], root, clean_environment)
    assert "timed_out=True" in printed


def test_train(
    root: Path,
    tmp_path: Path,
    docker_image: str,
    weights: Path,
    clean_environment: dict[str, str],
) -> None:
    code = examples(root)["Train"].replace('"runs"', repr(str(tmp_path)))
    assert str(tmp_path) in code
    printed = run(code, root, clean_environment)
    assert re.search(r"steps +1 of 1 \(finished\)", printed)
