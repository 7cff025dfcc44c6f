"""The command line: what a mistake looks like (one line, exit code 2), and what help says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from patchgym.datasets.task import bundled_tasks, dump_tasks
from patchgym.trainer.cli import main
from patchgym.trainer.cli.exits import classify
from patchgym.trainer.cli.main import COMMANDS
from patchgym.trainer.errors import ConfigError, RunStopped

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))


def patchgym(
    *words: str | Path, cwd: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [PATCHGYM, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, one line on stderr, no trace."""
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for part in parts:
        assert part in lines[0]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: patchgym {command}" in capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--learner.learning-rat", "1"), "did you mean learner.learning_rate?"),
        (("--group.size", "1"), "group.size is 1: it must be at least 2"),
        (("--config", "nowhere.toml"), "nowhere.toml: no such file"),
        (("--resume", "nothing"), "no run 'nothing'"),
        (("--stepz", "3"), "--stepz: not a flag"),
        (("--run.steps",), "--run.steps: its value is missing"),
        (("--tasks.train", "bundled:other"), "no bundled set 'bundled:other'"),
    ],
)
def test_a_mistake_in_settings(
    words: tuple[str, ...], part: str, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    done = patchgym("train", *words, cwd=tmp_path, environment=clean_environment)
    refused(done, part)
    assert list(tmp_path.glob("runs/*")) == []


def test_settings_are_printed_and_read_back(
    tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    words = ("train", "--run.steps", "3", "--print-config")
    done = patchgym(*words, cwd=tmp_path, environment=clean_environment)
    (tmp_path / "run.toml").write_text(done.stdout)
    words = ("train", "--config", "run.toml", "--print-config")
    again = patchgym(*words, cwd=tmp_path, environment=clean_environment)
    assert again.stdout == done.stdout
    assert "steps = 3" in done.stdout


def test_no_docker_engine(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    environment = {**clean_environment, "DOCKER_HOST": f"unix://{tmp_path}/nowhere.sock"}
    done = patchgym("train", cwd=tmp_path, environment=environment)
    refused(done, f"{tmp_path}/nowhere.sock")
    assert list(tmp_path.glob("runs/*")) == []
    done = patchgym("sandbox", "run", "--", "true", cwd=tmp_path, environment=environment)
    refused(done, f"{tmp_path}/nowhere.sock")
    done = patchgym("doctor", cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "lack  docker engine" in done.stdout
    assert "unset DOCKER_HOST" in done.stdout


@pytest.mark.docker
def test_a_corrupt_gguf(
    tmp_path: Path, docker_image: str, clean_environment: dict[str, str]
) -> None:
    dump_tasks(bundled_tasks("train")[:1], tmp_path / "train.jsonl")
    dump_tasks(bundled_tasks("heldout")[:1], tmp_path / "heldout.jsonl")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 64)
    done = patchgym(
        "train", "--model.path", "model.gguf", "--tasks.train", "train.jsonl",
        "--tasks.heldout", "heldout.jsonl", "--sandbox.slots", "2",
        cwd=tmp_path, environment=clean_environment,
    )  # fmt: skip
    refused(done, "model.gguf")
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.docker
def test_a_task_whose_tests_already_pass(
    tmp_path: Path, docker_image: str, clean_environment: dict[str, str]
) -> None:
    task = next(task for task in bundled_tasks("train") if task.pass_to_pass)
    passing = task.pass_to_pass[0]
    bad = replace(task, fail_to_pass=(*task.fail_to_pass, passing), pass_to_pass=())
    dump_tasks([bad], tmp_path / "train.jsonl")
    dump_tasks(bundled_tasks("heldout")[:1], tmp_path / "heldout.jsonl")
    words = ("--tasks.train", "train.jsonl", "--tasks.heldout", "heldout.jsonl")
    done = patchgym(
        "train", *words, "--sandbox.slots", "2", cwd=tmp_path, environment=clean_environment
    )
    refused(done, f"{bad.id}: FAIL_TO_PASS {passing} already passes on the base commit")
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.docker
@pytest.mark.parametrize(("patch", "code", "status"), [("gold", 0, "resolved"), ("empty", 1, "un")])
def test_score(
    patch: str, code: int, status: str, tmp_path: Path, docker_image: str,
    clean_environment: dict[str, str],
) -> None:  # fmt: skip
    name = f"bundled:heldout#{bundled_tasks('heldout')[0].id}"
    words = ("score", "--task", name, "--patch", patch, "--json")
    done = patchgym(*words, cwd=tmp_path, environment=clean_environment)
    assert done.returncode == code, done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert verdict["status"].startswith(status)


@pytest.mark.docker
def test_a_command_in_a_sandbox(
    tmp_path: Path, docker_image: str, clean_environment: dict[str, str]
) -> None:
    words = (
        "sandbox",
        "run",
        "--timeout",
        "20",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 3",
    )
    done = patchgym(*words, cwd=tmp_path, environment=clean_environment)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    late = ("sandbox", "run", "--timeout", "0.5", "--", "sleep", "60")
    assert patchgym(*late, cwd=tmp_path, environment=clean_environment).returncode == 124


def test_errors_become_exit_codes() -> None:
    assert classify(ConfigError("x")) == (2, "x")
    assert classify(RunStopped("y")) == (1, "y")
    assert classify(KeyboardInterrupt()) == (130, "stopped")
    assert classify(ExceptionGroup("g", [ConfigError("x")])) == (2, "x")
    assert classify(ZeroDivisionError()) is None
    assert classify(ExceptionGroup("g", [ConfigError("x"), ZeroDivisionError()])) is None
    missing = ModuleNotFoundError("No module named 'jax'", name="jax")
    assert classify(missing) == (2, "this needs jax: run pip install 'patchgym[train]'")
