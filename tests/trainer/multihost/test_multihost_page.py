"""Every `patchgym train` of the page and of the deployment files is one that patchgym takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from coin_runs import coin_run

from patchgym.trainer.cli.main import main


def commands(root: Path) -> list[list[str]]:
    """The words behind `patchgym train` that begin a training, from page and files."""
    files = [root / "docs/multihost.md", *sorted((root / "deploy").rglob("*.yaml"))]
    lines = [line for path in files for line in path.read_text().splitlines()]
    found = []
    for line in lines:
        _, here, rest = line.partition("patchgym train --config ")
        if here:
            found.append(["--config", *shlex.split(rest.partition("'")[0])])
    return found


def test_the_settings_that_they_make_are_shown(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coin_run(root, tmp_path, {})
    monkeypatch.chdir(tmp_path)
    told = commands(root)
    assert len(told) == 6
    for words in told:
        assert main(["train", *words, "--print-config"]) == 0, words
        assert "[learner.mesh]" in capsys.readouterr().out


def test_a_flag_that_is_none_would_be_found(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coin_run(root, tmp_path, {})
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--config", "run.toml", "--procesess", "2", "--print-config"]) == 2
    assert "procesess" in capsys.readouterr().err
