"""Every YAML file of `deploy/` by yamllint, the image's recipe by hadolint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run([program, *words[1:]], cwd=cwd, capture_output=True, text=True)


def test_yamllint_has_nothing_to_say(root: Path) -> None:
    done = run("yamllint", "--strict", "-c", "deploy/yamllint.yaml", "deploy", cwd=root)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_has_nothing_to_say(root: Path) -> None:
    done = run("hadolint", "deploy/image/Dockerfile", cwd=root)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("program", "name", "text"),
    [
        ("yamllint", "bad.yaml", "a: 1\na: 2\n"),
        ("hadolint", "Dockerfile", "FROM debian\nRUN cd /tmp && sudo make\n"),
    ],
)
def test_they_would_say_something(tmp_path: Path, program: str, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert run(program, name, cwd=tmp_path).returncode == 1
