"""`runs rescore`: real repositories and components, verdicts as they were stored, no test run."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from patchgym.agent import Completion, Observation, StopReason, Trajectory, Turn
from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import Conduct, Reward, RewardConfig, Score, Scorer, Verdict
from patchgym.rewards.base import VerdictStatus
from patchgym.sandbox import Outcome
from patchgym.trainer.cli import main
from patchgym.trainer.config import EnvironmentSection, RunConfig, RunSection, config_to_toml
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import WorkItem
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.rescored import Rescored, compare, most_moved
from patchgym.trainer.rescoring import reward_digest
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import TrajectoryStore

TASKS = [task for task in bundled_tasks("train") if task.pass_to_pass][:3]
NOTES = "".join(
    [
        "diff --git a/notes.txt b/notes.txt\nnew file mode 100644\n",
        "--- /dev/null\n+++ b/notes.txt\n@@ -0,0 +1,30 @@\n",
        *(f"+line {number}\n" for number in range(30)),
    ]
)


def verdict(task: Task, *, solved: bool) -> Verdict:
    ended: Outcome = "passed" if solved else "failed"
    outcomes: dict[str, Outcome] = {
        **dict.fromkeys(task.fail_to_pass, ended),
        **dict.fromkeys(task.pass_to_pass, "passed"),
    }
    status: VerdictStatus = "resolved" if solved else "unresolved"
    return Verdict(status=status, evidence="report", outcomes=outcomes)


def trajectory(
    task: Task, name: str, patch: str, *, turns: int, reason: StopReason = "submitted"
) -> Trajectory:
    completion = Completion(tokens=(5,), logprobs=(-0.5,), policy_version=0, finish="eos")
    turn = Turn(
        context=(1, 2),
        completion=completion,
        text="x",
        observations=(Observation(kind="format_error", text="", done=False),),
    )
    return Trajectory(rollout_id=name, task_id=task.id, seed=0, turns=(turn,) * turns,
                      stop_reason=reason, outcome=patch.encode())  # fmt: skip


async def scored(config: RewardConfig, task: Task, act: Trajectory, found: Verdict) -> Reward:
    """As the run's own workers score."""

    async def judge(task: Task, diff: bytes) -> Verdict:
        return found

    scorer = Scorer(config, verdict=judge, repositories=repositories_dir(), deadline=60.0)
    return await scorer.score(task, act.outcome, Conduct.of(act))


async def write_run(path: Path, config: RunConfig) -> RunFolder:
    """Of each task a group of four: the fix, the fix in more turns, one with junk, a failure."""
    folder = RunFolder(path)
    store = TrajectoryStore(folder.trajectories)
    async with Ledger(folder.ledger) as ledger:
        recorder = Recorder(ledger, store, FailureBudgets())
        for number, task in enumerate(TASKS):
            patches = (task.gold_patch, task.gold_patch, task.gold_patch + NOTES, NOTES)
            for member, patch in enumerate(patches):
                name = f"g{number:05d}-m{member}"
                item = WorkItem(rollout_id=name, group_id=name[:6], task=task, member=member,
                                attempt=0, seed=0, number=number)  # fmt: skip
                act = trajectory(task, name, patch, turns=1 + 3 * (member == 1))
                found = verdict(task, solved=member < 3)
                reward = await scored(config.reward, task, act, found)
                await recorder.rollout("train", item, act, reward)
        lost = trajectory(TASKS[0], "g00009-m0", "", turns=1, reason="turn_limit")
        item = WorkItem(rollout_id="g00009-m0", group_id="g00009", task=TASKS[0], member=0,
                        attempt=0, seed=0, number=9)  # fmt: skip
        unknown = Verdict(status="unknown", evidence="infra", detail="not scored: turn_limit")
        await recorder.rollout("train", item, lost, Reward(total=None, scores=(), verdict=unknown))
        await ledger.flush()
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A finished run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "first"
    path.mkdir(parents=True)
    config = RunConfig(run=RunSection(name="first"))
    (path / "run.toml").write_text(config_to_toml(config))
    return anyio.run(write_run, path, config)


def rescored(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["runs", "rescore", "first", *words, "--json"]) == code
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def rewards(text: str) -> tuple[str, str]:
    Path("other.toml").write_text(text)
    return "--rewards", "other.toml"


def test_the_runs_own_reward_gives_the_same_totals(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    record = rescored(capsys)
    assert (record["own_reward"], record["moved"], record["scored"]) == (True, 0, 12)
    assert (record["spearman"], record["kendall"]) == (pytest.approx(1), pytest.approx(1))
    assert record["left_out"] == {"no verdict: turn_limit": 1}
    assert main(["runs", "rescore", "first"]) == 0
    assert "the same total for all 12 rollouts" in capsys.readouterr().out


def test_another_reward_shows_who_moved_and_why(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {path.name: path.read_bytes() for path in run.trajectories.glob("*/*")}
    words = rewards(
        "tests = 1.0\npatch_size = 0.05\nturns = {weight = 0.5, free = 1, scale = 1.0}\n"
    )
    record = rescored(capsys, *words)
    assert {row["rollout_id"] for row in record["most_moved"]} == {
        f"g0000{number}-m1" for number in range(3)
    }
    assert {row["cause"] for row in record["most_moved"]} == {"turns"}
    assert record["most_moved"][0]["after"] == pytest.approx(0.5 + 0.5 * math.exp(-3))
    assert record["moved"] == 3
    assert record["groups"] == 3
    assert -1 < record["spearman_in_groups"] < 1
    assert record["reversed"] == 3
    means = {each["name"]: each for each in record["components"]}
    assert (means["turns"]["measured_before"], means["turns"]["before"]) == (0, None)
    assert means["tests"]["before"] == means["tests"]["after"] == 0.75
    assert {path.name: path.read_bytes() for path in run.trajectories.glob("*/*")} == stored
    assert main(["runs", "rescore", "first", *words]) == 0
    told = capsys.readouterr().out
    assert "g00000-m1" in told
    assert "turns -0.475" in told


def test_every_rollout_is_written_under_a_name_of_the_rewards_own(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = rescored(capsys)["file"]
    second = rescored(capsys, *rewards("tests = 2.0\n"))["file"]
    digest = reward_digest(RewardConfig.of({"tests": 2.0}))
    assert second == str(run.path / f"rescored-{digest}.jsonl")
    assert first != second
    rows = [json.loads(line) for line in Path(second).read_text().splitlines()]
    assert [row["rollout_id"] for row in rows] == [
        f"g0000{number}-m{member}" for number in range(3) for member in range(4)
    ]
    assert (rows[0]["before"], rows[0]["after"]) == (1.0, 2.0)
    assert rows[0]["moves"] == {"tests": 1.0}
    assert rows[0]["scores"][0]["evidence"]["verdict"] == "report"
    assert [path.name for path in run.path.glob("*.partial")] == []


def test_a_limit_takes_the_first(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert rescored(capsys, "--limit", "5")["scored"] == 5


def edit(run: RunFolder, rollout_id: str, change: Any) -> None:
    """Change what is stored of one rollout, as a file of the format before this one."""
    store = TrajectoryStore(run.trajectories)
    record = asdict(store.read(rollout_id))
    trajectory = record["trajectory"]
    trajectory["outcome"] = base64.b64encode(trajectory["outcome"]).decode()
    for turn in trajectory["turns"]:
        for observation in turn["observations"]:
            observation["diff"] = base64.b64encode(observation["diff"]).decode()
    change(record)
    store.path(rollout_id).unlink()
    data = gzip.compress(json.dumps(record).encode())
    (run.trajectories / f"{rollout_id}.json.gz").write_bytes(data)


def as_it_was(record: dict[str, Any]) -> None:
    """Before scores had a status, faults, a version."""
    for score in record["reward"]["scores"]:
        for key in ("status", "faults", "detail", "version", "seconds"):
            score.pop(key, None)


def test_an_older_format_reads_fine(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for member in range(3):
        edit(run, f"g00000-m{member}", as_it_was)
    assert (rescored(capsys)["moved"], rescored(capsys)["damaged"]) == (0, {})


def test_a_total_that_is_not_what_was_stored_is_said(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    def lower(record: dict[str, Any]) -> None:
        record["reward"]["total"] = 0.25

    edit(run, "g00001-m0", lower)
    record = rescored(capsys, code=1)
    assert record["moved"] == 1
    assert record["most_moved"][0]["rollout_id"] == "g00001-m0"
    assert main(["runs", "rescore", "first"]) == 1
    assert "another total for 1 of 12 rollouts" in capsys.readouterr().out


def test_damaged_trajectories_are_named_and_the_others_go_on(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    store = TrajectoryStore(run.trajectories)
    whole = store.path("g00000-m0").read_bytes()
    store.path("g00000-m0").write_bytes(whole[:60] + bytes(60) + whole[120:])
    store.path("g00000-m1").write_bytes(gzip.compress(b'{"trajectory": 5}'))
    store.path("g00000-m2").write_bytes(gzip.compress(b"[]"))
    store.path("g00000-m3").unlink()
    record = rescored(capsys)
    assert sorted(record["damaged"]) == [f"g00000-m{member}" for member in range(4)]
    assert record["scored"] == 8
    assert main(["runs", "rescore", "first"]) == 0
    assert "damaged: g00000-m3: no trajectory" in capsys.readouterr().out


def test_a_component_that_fails_is_named_by_rollout(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from patchgym.rewards import Component, Measurement\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(Component):\n"
        "    def measure(self, scene):\n"
        "        raise RuntimeError('no idea')\n"
    )
    words = rewards('tests = 1.0\nmine = {use = "mine.py:Mine", weight = 1.0}\n')
    record = rescored(capsys, *words)
    assert "g00000-m0" in record["unknown"]
    assert "mine: it raised RuntimeError: no idea" in record["unknown"]["g00000-m0"]
    assert "g00000-m3" not in record["unknown"]  # gated: its tests fail


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tests = ", "other.toml: not TOML"),
        ("testz = 1.0", "other.toml: reward.testz: no such component; did you mean tests?"),
        ("[reward]\ntests = -1", "other.toml: reward.tests.weight is -1"),
        ("reward = 3", "reward is 3: it must be a section"),
    ],
)
def test_a_bad_file_of_rewards_is_refused(
    text: str, message: str, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "rescore", "first", *rewards(text)]) == 2
    assert message in capsys.readouterr().err


def test_a_run_in_an_environment_of_its_own_is_refused(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(run.load_config(), environment=EnvironmentSection(use="mine:make"))
    run.config.write_text(config_to_toml(config))
    assert main(["runs", "rescore", "first"]) == 2
    assert "its own environment (mine:make) gave the reward" in capsys.readouterr().err


def test_a_run_without_rollouts_is_refused(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "runs" / "empty"
    empty.mkdir()
    (empty / "run.toml").write_text(run.config.read_text())
    assert main(["runs", "rescore", "empty"]) == 2
    assert "run.sqlite: no such file" in capsys.readouterr().err


def row(name: str, before: float | None, after: float | None, group: str = "g") -> Rescored:
    return Rescored(
        rollout_id=name, group_id=group, task_id="t", purpose="train", before=before, after=after
    )


def totals(*pairs: tuple[float | None, float | None], group: str = "g") -> list[Rescored]:
    return [row(f"{group}{n}", *pair, group=group) for n, pair in enumerate(pairs)]


def test_signs_and_spreads_are_counted_by_group() -> None:
    rows: Sequence[Rescored] = [
        *totals((0, 1), (1, 0), group="swapped"),
        *totals((0, 0), (1, 0), group="flat now"),
        *totals((1, 0), (1, 1), group="flat before"),
        *totals((0, 1), (None, 2), group="one known"),
    ]
    found = compare(rows)
    assert (found.rollouts, found.moved) == (7, 6)
    assert (found.groups, found.gained, found.lost) == (1, 1, 1)
    assert (found.reversed, found.unsigned) == (2, 4)
    assert (found.spearman_in_groups, found.kendall_in_groups) == (-1, -1)


def test_those_that_moved_most_come_first_and_unknown_ones_not_at_all() -> None:
    rows = totals((0, 0.5), (0, -2), (1, 1), (None, 3), (1, 2))
    assert [each.rollout_id for each in most_moved(rows, 2)] == ["g1", "g4"]
    assert [each.moved for each in rows] == [True, True, False, True, True]


def test_the_cause_is_the_component_that_moved_most() -> None:
    before = Reward(total=1.0, verdict=verdict(TASKS[0], solved=True), scores=(
        Score(name="tests", value=1.0, weight=1.0), Score(name="old", value=0.5, weight=-0.2),
    ))  # fmt: skip
    after = Reward(total=0.7, verdict=before.verdict, scores=(
        Score(name="tests", value=1.0, weight=1.0), Score(name="lint", value=0.6, weight=-0.5),
    ))  # fmt: skip
    names = {"rollout_id": "r", "group_id": "g", "task_id": "t", "purpose": "train"}
    moved = Rescored.of(before, after, **names)
    assert moved.cause == "lint"
    assert moved.moves == {"old": pytest.approx(0.1), "lint": pytest.approx(-0.3)}
    assert moved.values["old"] == (0.5, None)


@pytest.mark.docker
def test_linters_run_again_and_nothing_else_does(
    run: RunFolder, docker_image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    untidy = bundled_untidy()

    def replace_patch(record: dict[str, Any]) -> None:
        record["trajectory"]["outcome"] = base64.b64encode(untidy.encode()).decode()

    edit(run, "g00000-m0", replace_patch)
    words = rewards("tests = 1.0\nlint = 0.5\n")
    record = rescored(capsys, "--limit", "2", *words)
    assert record["unknown"] == {}
    assert [row["rollout_id"] for row in record["most_moved"]] == ["g00000-m0"]
    assert record["most_moved"][0]["cause"] == "lint"


def bundled_untidy() -> str:
    """The first task's fix, with an import that nothing uses."""
    return TASKS[0].gold_patch + (
        "diff --git a/more.py b/more.py\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1 @@\n+import os\n"
    )
