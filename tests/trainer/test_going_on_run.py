"""A run that leaves broken tasks out, and goes on from an older checkpoint with them again."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from chaos_runs import NAME, ChaosRun

pytestmark = pytest.mark.slow

BROKEN = """
class BrokenSum(arithmetic.SumEnvironment):
    async def open(self):
        raise RuntimeError("its repository is gone")

class SomeBroken(Coins):
    def environment(self, task, on_stage):
        broken = BROKEN and task.left == 4
        return BrokenSum(task) if broken else super().environment(task, on_stage)
"""
WITHOUT_RETRIES: dict[str, dict[str, Any]] = {
    "environment": {"use": "coins.py:SomeBroken", "settings": {"top": 6}},
    "rollout": {"retries": 0},
    "failures": {"environment": 1.0},
    "tasks": {"quarantine": 2},
    "run": {"steps": 30},
    "checkpoint": {"every": 10, "keep": 9},
}


@pytest.fixture
def run(root: Path, tmp_path: Path, clean_environment: dict[str, str]) -> ChaosRun:
    return ChaosRun(root, tmp_path, clean_environment, tmp_path / "programs")


def rows(run: ChaosRun, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"file:{run.run / 'run.sqlite'}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def said(run: ChaosRun) -> str:
    """What the last process told, without line ends."""
    return " ".join(run.log.read_text().split())


def opened(run: ChaosRun, since: int) -> set[object]:
    """Tasks of the groups with numbers from `since` on."""
    return {task for (task,) in rows(run, f"SELECT task_id FROM groups WHERE number >= {since}")}


def groups(run: ChaosRun) -> int:
    ((count,),) = rows(run, "SELECT COUNT(*) FROM groups")
    assert isinstance(count, int)
    return count


def trained(run: ChaosRun, before: int) -> set[tuple[object, ...]]:
    """Groups of the steps before that one."""
    return set(rows(run, f"SELECT id FROM groups WHERE state = 'committed' AND step < {before}"))


def test_broken_tasks_are_left_out_and_an_older_checkpoint_goes_on_with_them_again(
    run: ChaosRun,
) -> None:
    run.prepare(WITHOUT_RETRIES)
    run.add(BROKEN + "\nBROKEN = True\n")
    with run.training() as process:
        assert process.wait(240) == 0, run.log.read_text()
    out = {task for (task,) in rows(run, "SELECT id FROM tasks WHERE quarantined")}
    assert out and all(str(task).startswith("sum/4+") for task in out)
    assert run.summary()["alarms"]["quarantined"]["count"] == len(out)
    for task in out:
        assert f"{task} is left out: 2 groups in a row came to nothing" in said(run)

    before = groups(run)
    with run.training("--run.steps", "36") as process:
        assert process.wait(240) == 0, run.log.read_text()
    assert "run.steps: 30 -> 36 accepted: how far it goes" in said(run)
    assert opened(run, before) and not opened(run, before) & out
    assert run.checkpoints() == [10, 20, 30, 36]
    refused = run.command("train", "--resume", NAME, "--from", "11")
    assert refused.returncode == 2 and "no such checkpoint" in refused.stderr, refused.stderr
    assert run.checkpoints() == [10, 20, 30, 36]

    before, still = groups(run), trained(run, 10)
    run.add("\nBROKEN = False\n")
    with run.training("--from", "10", "--readmit", "all", "--run.steps", "60") as process:
        assert process.wait(240) == 0, run.log.read_text()
    assert "from the checkpoint of step 10; set aside in" in said(run)
    assert out <= opened(run, before) and "is taken in again" in said(run)
    assert rows(run, "SELECT id FROM tasks WHERE quarantined") == []
    assert trained(run, 10) == still
    assert rows(run, "SELECT step FROM steps ORDER BY step") == [(n,) for n in range(60)]
    assert run.checkpoints() == [10, 20, 30, 40, 50, 60]
    aside = sorted(path.name for path in (run.run / "set-aside").iterdir())
    assert aside == ["step-20", "step-30", "step-36"]
    ((detail,),) = rows(run, "SELECT detail FROM events WHERE kind = 'went_back'")
    assert json.loads(str(detail)) == {"step": 10, "asked": "10", "set_aside": [36, 30, 20]}
    report = run.check()
    assert report["state"] == "finished" and report["broken"] == 0
