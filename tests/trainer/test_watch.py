"""`runs watch`: a run seen from another process, by what it leaves in its folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coin_runs import PATCHGYM, coin_run, patchgym

from patchgym.trainer.cli import main
from patchgym.trainer.cli.sight import News, look
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.progress import Progress
from patchgym.trainer.run_folder import RunFolder


async def leave(folder: Path, *, state: str, steps: int, alarm: str = "", waits: str = "") -> None:
    """What a run has in its folder after so many steps."""
    (folder / "run.toml").write_text("[run]\nsteps = 9\n")
    progress = Progress(title=folder.name, phase="training", step=steps, steps=9, waits_for=waits)
    account = {"idle_share": 0.3, "idle_reasons": {"sampling": 0.3}}
    progress.account = {**account, "sampler": {"idle_share": 0.4, "idle_reasons": {}}}
    async with Ledger(folder / "run.sqlite") as ledger:
        ledger.meta("state", state)
        ledger.meta("now", {**progress.snapshot(), "at": 0.0})
        for step in range(steps):
            ledger.step(step, {"reward": 0.5, "pass_rate": 0.25})
        if alarm:
            ledger.event("alarm", alarm="mismatch", words=alarm)


async def test_news_are_what_was_not_there_before(tmp_path: Path) -> None:
    folder, news = RunFolder(tmp_path), News()
    await leave(tmp_path, state="running", steps=2)
    assert list(news.of(look(folder))) == [
        "training",
        "step 2: reward 0.500, pass rate 25%, learner idle 30%, sampler idle 40%",
    ]
    assert list(news.of(look(folder))) == []
    waits = "learner waits 41 s for groups: 1 rollout of calc in sampling since 40 s"
    await leave(tmp_path, state="running", steps=4, alarm="too far apart", waits=waits)
    lines = list(news.of(look(folder)))
    assert [line.split(":")[0] for line in lines[:2]] == ["step 3", "step 4"]
    assert lines[2:] == ["alarm (mismatch): too far apart", waits]
    assert list(news.of(look(folder))) == [], "one line for one wait"
    await leave(tmp_path, state="failed", steps=4)
    assert list(news.of(look(folder))) == ["failed"]
    assert look(folder).ended


async def test_a_run_of_which_nobody_left_a_picture_is_seen_by_its_steps(tmp_path: Path) -> None:
    await leave(tmp_path, state="finished", steps=3)
    import sqlite3

    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("DELETE FROM meta WHERE key = 'now'")
    connection.commit()
    connection.close()
    sight = look(RunFolder(tmp_path))
    assert (sight.now["step"], sight.now["phase"], sight.ended) == (3, "finished", True)


def test_a_folder_that_a_run_never_began_in_ends_the_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import os

    config = tmp_path / "old" / "run.toml"
    config.parent.mkdir()
    config.write_text("")
    assert look(RunFolder(config.parent)).state == "starting"
    os.utime(config, (1e9, 1e9))
    assert main(["runs", "--folder", str(tmp_path), "watch", "old"]) == 0
    assert "never began" in capsys.readouterr().out


def test_a_run_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--folder", str(tmp_path), "watch", "nothing"]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_run_is_followed_from_another_process_until_it_ends(
    root: Path,
    tmp_path: Path,
    clean_environment: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    coin_run(root, tmp_path, {"run": {"steps": 3}})
    with (tmp_path / "out").open("w") as output:
        run = subprocess.Popen(
            [PATCHGYM, "train", "--config", "run.toml", "--json"],
            cwd=tmp_path, env=clean_environment, stdout=output, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not (tmp_path / "runs" / "coins" / "run.toml").is_file():
            assert run.poll() is None
        words = ("runs", "watch", "coins", "--json", "--every", "0.5")
        watch = patchgym(tmp_path, clean_environment, *words)
        assert run.wait() == 0
    assert watch.returncode == 0, watch.stderr
    check_seen([json.loads(line) for line in watch.stdout.splitlines()])
    check_told([json.loads(line) for line in (tmp_path / "out").read_text().splitlines()])
    assert main(["runs", "--folder", str(tmp_path / "runs"), "watch", "latest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("] finished")
    assert "] step 3: " in lines[1]


def check_seen(seen: list[dict[str, Any]]) -> None:
    """What the watcher saw: not only the end."""
    assert [each["ended"] for each in seen] == [False] * (len(seen) - 1) + [True]
    assert (seen[-1]["state"], seen[-1]["now"]["step"]) == ("finished", 3)
    assert seen[-1]["last_step"]["step"] == 2
    assert {"training", "finished"} <= {each["now"]["phase"] for each in seen}


def check_told(told: list[dict[str, Any]]) -> None:
    """What `train --json` told: every step, and the summary at the end."""
    steps = [each for each in told if each["kind"] == "step"]
    assert [each["step"] for each in steps] == [0, 1, 2]
    assert (told[-1]["kind"], told[-1]["state"]) == ("summary", "finished")
    account = steps[-1]["idle"]
    assert sum(account["learner"].values()) == pytest.approx(account["seconds"], abs=1e-3)
