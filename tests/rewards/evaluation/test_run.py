"""Evaluations: what is kept, what is judged again, and what one bad task may cost the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from patchgym.datasets.task import Task, TaskError, bundled_tasks
from patchgym.rewards import Verdict
from patchgym.rewards.evaluation import (
    Attempt,
    EvaluationConfig,
    EvaluationError,
    Judged,
    Prediction,
    Predictions,
    Store,
    built_in,
    evaluate,
)
from patchgym.rewards.evaluation.store import verdict_key
from patchgym.sandbox import EngineUnavailable

pytestmark = pytest.mark.anyio
TASKS = bundled_tasks("heldout")[:4]
GOLD = built_in("gold", TASKS)
LOST = Verdict(status="unknown", evidence="infra", detail="gone")


class Judge:
    """Says what it is told to, and counts who asked."""

    def __init__(self, answers: Mapping[str, Verdict | Exception] | None = None) -> None:
        self.answers = answers or {}
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []

    async def __call__(self, task: Task, patch: bytes) -> Verdict:
        self.asked[task.id] += 1
        self.order.append(task.id)
        await checkpoint()
        answer = self.answers.get(task.id)
        if isinstance(answer, Exception):
            raise answer
        return answer or Verdict(
            status="resolved", evidence="report", outcomes=dict.fromkeys(task.tests, "passed"),
            log=f"tests of {task.id}", seconds=0.25,
        )  # fmt: skip


class Watch:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.plan = (0, 0)
        self.finished_ids: list[str] = []

    def planned(self, total: int, taken_over: int) -> None:
        self.plan = (total, taken_over)

    def started(self, attempt: Attempt) -> None:
        assert attempt.task.id not in self.finished_ids or attempt.repeat

    async def finished(self, attempt: Attempt, verdict: Verdict) -> None:
        self.finished_ids.append(attempt.task.id)


async def go(
    report: Path,
    judge: Judge,
    *,
    predictions: Predictions = GOLD,
    config: EvaluationConfig | None = None,
    watch: Watch | None = None,
) -> dict[str, Judged]:
    with Store(report) as store:
        return await evaluate(
            TASKS, predictions, judge, store, config or EvaluationConfig(), watch or Watch()
        )


async def test_each_prediction_gets_its_verdict_and_its_log(tmp_path: Path) -> None:
    watch = Watch()
    found = await go(tmp_path / "r.json", Judge(), watch=watch)
    assert set(found) == {task.id for task in TASKS}
    assert watch.plan == (4, 0)
    assert sorted(watch.finished_ids) == sorted(found)
    for task in TASKS:
        (log,) = found[task.id].logs
        text = (tmp_path / log).read_text()
        assert f"tests of {task.id}" in text
        assert task.gold_patch in text
        assert all(test in text for test in task.tests)


async def test_the_first_repeat_of_all_comes_before_the_second_of_any(tmp_path: Path) -> None:
    judge = Judge()
    config = EvaluationConfig(repeats=3, jobs=2)
    found = await go(tmp_path / "r.json", judge, config=config)
    assert all(set(judge.order[n : n + 4]) == set(found) for n in (0, 4, 8))
    assert all(len(judged.verdicts) == len(set(judged.logs)) == 3 for judged in found.values())


async def test_the_same_again_judges_nothing(tmp_path: Path) -> None:
    first = await go(tmp_path / "r.json", Judge())
    judge, watch = Judge(), Watch()
    again = await go(tmp_path / "r.json", judge, watch=watch)
    assert not judge.asked
    assert watch.plan == (4, 4)
    assert {key: replace(j.verdicts[0], log="") for key, j in first.items()} == {
        key: j.verdicts[0] for key, j in again.items()
    }


async def test_only_what_changed_is_judged_again(tmp_path: Path) -> None:
    await go(tmp_path / "r.json", Judge())
    changed = {**GOLD.by_task, TASKS[1].id: Prediction(patch=b"another")}
    judge = Judge()
    await go(tmp_path / "r.json", judge, predictions=Predictions(by_task=changed))
    assert list(judge.asked) == [TASKS[1].id]
    judge = Judge()
    await go(tmp_path / "r.json", judge, config=EvaluationConfig(repeats=2))
    assert judge.asked == Counter(task.id for task in TASKS)  # the second repeat alone
    judge = Judge()
    await go(tmp_path / "r.json", judge, config=EvaluationConfig(settings={"timeout": 3}))
    assert judge.asked == Counter(task.id for task in TASKS)


async def test_what_the_machine_failed_is_judged_again(tmp_path: Path) -> None:
    found = await go(tmp_path / "r.json", Judge({TASKS[0].id: LOST}))
    assert found[TASKS[0].id].verdicts == (LOST,)
    judge = Judge()
    found = await go(tmp_path / "r.json", judge)
    assert list(judge.asked) == [TASKS[0].id]
    assert found[TASKS[0].id].verdicts[0].status == "resolved"


@pytest.mark.parametrize(
    "damage", [b'{"key": "12', b"\xff\xfe\n", b"[]\n", b'{"key": 3, "verdict": {}}\n', b"\n\n"]
)
async def test_a_damaged_end_costs_nothing_else(damage: bytes, tmp_path: Path) -> None:
    await go(tmp_path / "r.json", Judge({TASKS[3].id: LOST}))
    verdicts = tmp_path / "r.json.work" / "verdicts.jsonl"
    with verdicts.open("ab") as file:
        file.write(damage)
    judge = Judge()
    await go(tmp_path / "r.json", judge)
    assert list(judge.asked) == [TASKS[3].id]
    judge = Judge()
    await go(tmp_path / "r.json", judge)
    assert not judge.asked


async def test_any_cut_loses_at_most_the_line_that_it_cuts(tmp_path: Path) -> None:
    await go(tmp_path / "r.json", Judge(), config=EvaluationConfig(jobs=1))
    verdicts = tmp_path / "r.json.work" / "verdicts.jsonl"
    whole = verdicts.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10]
    for cut in (0, 1, ends[0] - 1, ends[0], ends[0] + 1, ends[2] - 20, len(whole) - 1):
        verdicts.write_bytes(whole[:cut])
        judge = Judge()
        await go(tmp_path / "r.json", judge)
        there = sum(end <= cut + 1 for end in ends)  # a line is whole without its line end
        assert sum(judge.asked.values()) == 4 - there, cut


async def test_whatever_a_judge_raises_is_its_own_tasks_matter(tmp_path: Path) -> None:
    answers = {TASKS[0].id: TaskError("no such commit: fetch it"), TASKS[1].id: KeyError("oops")}
    found = await go(tmp_path / "r.json", Judge(answers))
    bad, worse, *rest = (found[task.id].verdicts[0] for task in TASKS)
    assert (bad.status, bad.evidence) == ("unknown", "infra")
    assert bad.detail == "TaskError: no such commit: fetch it"
    assert worse.detail == "a fault of patchgym's: KeyError: 'oops'"
    assert "Traceback" in (tmp_path / found[TASKS[1].id].logs[0]).read_text()
    assert [each.status for each in rest] == ["resolved", "resolved"]


async def test_a_watcher_may_end_it(tmp_path: Path) -> None:
    class Gone(Watch):
        async def finished(self, attempt: Attempt, verdict: Verdict) -> None:
            raise EngineUnavailable("no Docker daemon answers")

    with pytest.RaisesGroup(EngineUnavailable):
        config = EvaluationConfig(jobs=1)
        await go(tmp_path / "r.json", Judge({TASKS[0].id: LOST}), config=config, watch=Gone())
    judge = Judge()
    await go(tmp_path / "r.json", judge)
    assert sum(judge.asked.values()) == 4


async def test_a_verdict_has_a_deadline(tmp_path: Path) -> None:
    class Stuck(Judge):
        async def __call__(self, task: Task, patch: bytes) -> Verdict:
            if task is TASKS[2]:
                await anyio.sleep_forever()
            return await super().__call__(task, patch)

    found = await go(tmp_path / "r.json", Stuck(), config=EvaluationConfig(deadline=0.2, jobs=1))
    assert found[TASKS[2].id].verdicts[0].detail == "no verdict within 0 s"
    assert found[TASKS[3].id].verdicts[0].status == "resolved"


async def test_a_cancelled_evaluation_keeps_what_is_done(tmp_path: Path) -> None:
    class Last(Judge):
        async def __call__(self, task: Task, patch: bytes) -> Verdict:
            if task is TASKS[3]:
                scope.cancel()
            return await super().__call__(task, patch)

    with anyio.CancelScope() as scope:
        await go(tmp_path / "r.json", Last(), config=EvaluationConfig(jobs=1))
    assert scope.cancelled_caught
    judge = Judge()
    await go(tmp_path / "r.json", judge)
    assert list(judge.asked) == [TASKS[3].id]


async def test_two_evaluations_of_one_report(tmp_path: Path) -> None:
    with Store(tmp_path / "r.json"):
        with pytest.raises(EvaluationError, match=r"process \d+ is writing this report"):
            with Store(tmp_path / "r.json"):
                pass
    with Store(tmp_path / "r.json"):
        pass


def test_a_folder_that_cant_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="can't be written"):
        with Store(tmp_path / "file" / "r.json"):
            pass


def test_what_a_verdict_is_filed_under() -> None:
    task = TASKS[0]
    key = verdict_key(task, b"x\n", {"a": 1}, 0)
    assert key == verdict_key(task, b"x", {"a": 1}, 0)
    assert key == verdict_key(replace(task, statement="other", split="other"), b"x", {"a": 1}, 0)
    others = [
        verdict_key(task, b"y", {"a": 1}, 0),
        verdict_key(task, b"x\r\n", {"a": 1}, 0),
        verdict_key(task, b"x", {"a": 2}, 0),
        verdict_key(task, b"x", {"a": 1}, 1),
        verdict_key(replace(task, image="other"), b"x", {"a": 1}, 0),
        verdict_key(TASKS[1], b"x", {"a": 1}, 0),
    ]
    assert len({key, *others}) == 7
    assert verdict_key(task, b"", {}, 0) == verdict_key(task, b" \n\n", {}, 0)


async def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    with Store(tmp_path / "r.json") as store:
        names = [store.log_name(each, 0) for each in ("a/b", "a.b", "x" * 300, "x" * 301)]
        assert len(set(names)) == 4
        assert all(len(Path(each).name) < 255 for each in names)
        store.keep("k", "x" * 300, 1, LOST, "text \ud800")
    assert (tmp_path / "r.json.work" / "logs").is_dir()
    line = json.loads((tmp_path / "r.json.work" / "verdicts.jsonl").read_text())
    assert (line["key"], line["repeat"]) == ("k", 1)
