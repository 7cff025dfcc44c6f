"""Scoring: what is made, what is shared, what is saved, and what stays unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from calc_repository import BASE, BUG
from calc_task import CalcRepository

from patchgym.datasets.task import Task
from patchgym.rewards import (
    Component,
    Conduct,
    Measurement,
    Part,
    Reward,
    RewardConfig,
    Scene,
    Scorer,
    ScoreStore,
    UnknownValue,
    Verdict,
)
from patchgym.rewards.component import Need
from patchgym.rewards.components.tests import Tests
from patchgym.sandbox import Bandit, Linter, LintReport, PatchError, Ruff, SandboxLost, Skipped

pytestmark = pytest.mark.anyio
UNKNOWN = Verdict(status="unknown", evidence="infra", detail="the daemon went away")
LIBRARY = "calc/arithmetic.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gives(Component):
    """A component without needs."""

    value: float = 1.0
    gate: ClassVar[str] = ""

    def measure(self, scene: Scene) -> Measurement:
        if self.value < 0:
            raise UnknownValue("below zero")
        return Measurement(value=self.value, evidence={"size": scene.change.size})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Gives):
    """A penalty."""

    penalty: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Component):
    """A penalty by lint findings."""

    security: bool = False
    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"lint"})

    def linters(self) -> tuple[Linter, ...]:
        return (Ruff(), Bandit()) if self.security else (Ruff(),)

    def measure(self, scene: Scene) -> Measurement:
        assert scene.lint is not None
        return Measurement(value=float(bool(scene.lint.files)), tools="ruff 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns(Component):
    """A penalty by what the rollout did."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"conduct"})
    gate: ClassVar[str] = ""

    def measure(self, scene: Scene) -> Measurement:
        if scene.conduct is None:
            raise UnknownValue("no rollout")
        return Measurement(value=scene.conduct.turns / 10)


def part(name: str, component: Component, weight: float = 1.0, **named: object) -> Part:
    usual: dict[str, object] = {"gate": component.gate, "required": component.required}
    given = {**usual, **named}
    return Part(name=name, component=component, source=f"x:{name}", weight=weight, **given)  # type: ignore[arg-type]


TESTS = part("tests", Tests())


def passing(task: Task) -> Verdict:
    return Verdict(
        status="resolved", evidence="report", outcomes=dict.fromkeys(task.tests, "passed")
    )


@dataclass(slots=True, kw_only=True)
class Stage:
    """Takes verdicts and lints, when it is let, as it is told; counts what it was asked for."""

    verdict: Callable[[Task], Verdict] = passing
    report: LintReport = field(default_factory=lambda: LintReport(files=(LIBRARY,)))
    problem: Exception | None = None
    gate: anyio.Event = field(default_factory=anyio.Event)
    judged: list[bytes] = field(default_factory=list)
    linted: list[tuple[str, ...]] = field(default_factory=list)

    async def judge(self, task: Task, diff: bytes) -> Verdict:
        self.judged.append(diff)
        await self.gate.wait()
        return self.verdict(task)

    async def lint(self, task: Task, diff: bytes, linters: Sequence[Linter]) -> LintReport:
        self.linted.append(tuple(linter.tool.name for linter in linters))
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return self.report


@pytest.fixture
def calc(tmp_path: Path) -> CalcRepository:
    return CalcRepository(tmp_path / "calc")


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.gate.set()
    return stage


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ScoreStore]:
    store = ScoreStore(tmp_path / "kept")
    yield store
    store.close()


def scorer(
    stage: Stage, *parts: Part, store: ScoreStore | None = None, deadline: float = 60.0
) -> Scorer:
    return Scorer(
        RewardConfig(parts=parts),
        verdict=stage.judge,
        lint=stage.lint,
        repositories=Path("/nowhere"),
        deadline=deadline,
        store=store,
        context="image 1",
    )


def gold(calc: CalcRepository) -> bytes:
    return calc.task.gold_patch.encode()


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_scores_come_in_the_order_of_the_parts_with_their_total(
    calc: CalcRepository, stage: Stage
) -> None:
    made = scorer(stage, part("cost", Cost(value=0.5), 0.2), TESTS, part("turns", Turns(), 0.1))
    reward = await made.score(calc.task, gold(calc), Conduct(turns=5))
    assert [(score.name, score.value, score.weight) for score in reward.scores] == [
        ("cost", 0.5, -0.2), ("tests", 1.0, 1.0), ("turns", 0.5, -0.1)
    ]  # fmt: skip
    assert reward.total == pytest.approx(1.0 - 0.1 - 0.05)
    assert reward.resolved and not reward.shared
    cost = reward.score("cost")
    assert cost is not None and cost.evidence == {"size": 2}


async def test_patches_that_make_the_same_tree_are_judged_and_linted_once(
    calc: CalcRepository,
) -> None:
    stage = Stage()
    made = scorer(stage, TESTS, part("lint", Findings(), 0.1, gate=""))
    same = [gold(calc), gold(calc), b"So:\n" + gold(calc), gold(calc).rstrip(b"\n")]
    other = calc.diff({**BASE, LIBRARY: BASE[LIBRARY].replace(BUG.encode(), b"return 3")})
    rewards: list[Reward] = []

    async def score(diff: bytes) -> None:
        rewards.append(await made.score(calc.task, diff))

    async with anyio.create_task_group() as group:
        for diff in (*same, other):
            group.start_soon(score, diff)
        await until(lambda: len(stage.judged) == 2 and len(stage.linted) == 2)
        stage.gate.set()
    assert sorted(reward.shared for reward in rewards) == [False, False, True, True, True]
    assert (made.judged, made.shared, made.linted, made.hits) == (2, 3, 2, 0)
    assert (await made.score(calc.task, gold(calc))).shared
    assert (len(stage.judged), len(stage.linted)) == (2, 2)


async def test_a_cancelled_leader_is_followed_by_one_who_waits(calc: CalcRepository) -> None:
    stage = Stage()
    made = scorer(stage, TESTS)
    rewards: list[Reward] = []
    leader = anyio.CancelScope()

    async def lead() -> None:
        with leader:
            await made.score(calc.task, gold(calc))

    async def follow() -> None:
        rewards.append(await made.score(calc.task, gold(calc)))

    async with anyio.create_task_group() as group:
        group.start_soon(lead)
        await until(lambda: len(stage.judged) == 1)
        for _ in range(3):
            group.start_soon(follow)
        await until(lambda: made._makers._verdicts.waiting == 3)
        leader.cancel()
        await until(lambda: len(stage.judged) == 2)
        stage.gate.set()
    assert [reward.total for reward in rewards] == [1.0] * 3
    assert sorted(reward.shared for reward in rewards) == [False, True, True]
    assert len(stage.judged) == 2


async def test_an_unknown_verdict_is_shared_at_once_and_then_gets_a_new_chance(
    calc: CalcRepository, stage: Stage, store: ScoreStore
) -> None:
    stage.verdict = lambda task: UNKNOWN
    made = scorer(stage, TESTS, store=store)
    first = await made.score(calc.task, gold(calc))
    assert (first.total, first.scores[0].status) == (None, "unknown")
    assert "the daemon went away" in first.scores[0].detail
    stage.verdict = passing
    assert (await made.score(calc.task, gold(calc))).total == 1.0


async def test_an_unknown_verdict_counts_only_where_a_component_requires_it(
    calc: CalcRepository, stage: Stage
) -> None:
    stage.verdict = lambda task: UNKNOWN
    lax = scorer(stage, replace(TESTS, required=False), part("other", Gives(value=0.25)))
    assert (await lax.score(calc.task, gold(calc))).total == 0.25
    strict = scorer(stage, TESTS, part("other", Gives(value=0.25)))
    assert (await strict.score(calc.task, gold(calc))).total is None


async def test_past_the_deadline_verdict_and_report_are_unknown(calc: CalcRepository) -> None:
    made = scorer(Stage(), TESTS, part("lint", Findings(), gate=""), deadline=0.05)
    reward = await made.score(calc.task, gold(calc))
    assert reward.total is None
    assert reward.verdict.detail == "no verdict within 0.05 s"
    assert [score.detail for score in reward.scores] == [
        "no verdict within 0.05 s", "no lint report within 0.05 s"
    ]  # fmt: skip


async def test_what_the_judge_raises_is_an_unknown_verdict(
    calc: CalcRepository, stage: Stage
) -> None:
    def raises(task: Task) -> Verdict:
        raise KeyError("x")

    stage.verdict = raises
    reward = await scorer(stage, TESTS).score(calc.task, gold(calc))
    assert (reward.total, reward.verdict.evidence) == (None, "infra")
    assert "KeyError" in reward.verdict.detail


@pytest.mark.parametrize("problem", [SandboxLost("gone"), PatchError("no", reason="mismatch"),
                                     RuntimeError("?")])  # fmt: skip
async def test_a_failed_lint_run_is_unknown_for_its_components_alone(
    calc: CalcRepository, stage: Stage, problem: Exception
) -> None:
    stage.problem = problem
    reward = await scorer(stage, TESTS, part("lint", Findings())).score(calc.task, gold(calc))
    assert reward.total == 1.0
    assert [score.status for score in reward.scores] == ["measured", "unknown"]
    assert str(problem) in reward.scores[1].detail


async def test_one_lint_run_serves_all_components_with_the_linters_of_all(
    calc: CalcRepository, stage: Stage
) -> None:
    parts = (part("lint", Findings(), 0.1), part("security", Findings(security=True), 0.1))
    reward = await scorer(stage, TESTS, *parts).score(calc.task, gold(calc))
    assert stage.linted == [("ruff", "bandit")]
    assert [score.version for score in reward.scores] == ["1", "1 ruff 1", "1 ruff 1"]


async def test_one_linter_with_two_settings_is_refused(stage: Stage) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Other(Findings):
        def linters(self) -> tuple[Linter, ...]:
            return (Ruff(select=("S",)),)

    with pytest.raises(ValueError, match="other and lint want ruff with different settings"):
        scorer(stage, TESTS, part("lint", Findings()), part("other", Other()))


async def test_a_report_that_misses_a_linter_is_not_kept(
    calc: CalcRepository, stage: Stage, store: ScoreStore
) -> None:
    stage.report = LintReport(skipped=(Skipped(tool="ruff", path=None, reason="no time"),))
    made = scorer(stage, TESTS, part("lint", Findings()), store=store)
    for _ in range(2):
        await made.score(calc.task, gold(calc))
    assert len(stage.linted) == 2


async def test_a_cheap_gate_saves_the_dear_ones(calc: CalcRepository, stage: Stage) -> None:
    cheap = part("cheap", Gives(value=0.25))
    tests = replace(TESTS, gate="cheap", gate_above=0.5)
    made = scorer(stage, cheap, tests, part("lint", Findings()))
    reward = await made.score(calc.task, gold(calc))
    assert (stage.judged, stage.linted, made.judged) == ([], [], 0)
    assert [score.status for score in reward.scores] == ["measured", "gated", "gated"]
    assert [score.detail for score in reward.scores[1:]] == [
        "cheap is 0.25, not above 0.5", "tests is gated itself, not above 0"
    ]  # fmt: skip
    assert (reward.verdict.status, reward.verdict.evidence) == ("unknown", "not_taken")
    assert (reward.total, reward.resolved) == (0.25, False)


async def test_failing_tests_save_the_linters(calc: CalcRepository, stage: Stage) -> None:
    stage.verdict = lambda task: Verdict(status="unresolved", evidence="report")
    reward = await scorer(stage, TESTS, part("lint", Findings())).score(calc.task, gold(calc))
    assert (reward.total, stage.linted) == (0.0, [])
    assert reward.scores[1].detail == "tests is 0, not above 0"


async def test_behind_an_unknown_gate_all_is_unknown(calc: CalcRepository, stage: Stage) -> None:
    gate = part("gate", Gives(value=-1.0), 0.1)
    made = scorer(stage, TESTS, gate, part("behind", Gives(), 0.1, gate="gate"))
    reward = await made.score(calc.task, gold(calc))
    assert reward.scores[2].detail == "its gate gate is unknown: below zero"
    assert (reward.scores[2].status, reward.total) == ("unknown", 1.0)


async def test_a_component_without_a_gate_does_not_wait_for_the_verdict(
    calc: CalcRepository,
) -> None:
    seen: list[bytes] = []

    @dataclass(frozen=True, kw_only=True)
    class Tells(Gives):
        def measure(self, scene: Scene) -> Measurement:
            seen.append(scene.diff)
            return Measurement(value=1.0)

    stage = Stage()
    made = scorer(stage, TESTS, part("tells", Tells()))
    async with anyio.create_task_group() as group:
        group.start_soon(made.score, calc.task, gold(calc))
        await until(lambda: seen and stage.judged)
        stage.gate.set()
    assert seen == [gold(calc)]


async def test_the_next_run_finds_verdicts_reports_and_heavy_scores(
    calc: CalcRepository, stage: Stage, store: ScoreStore, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    library = tmp_path / "own.py"
    library.write_text(OWN.replace("MARK", str(mark)))
    config = RewardConfig.of(
        {
            "own": {"use": f"{library}:Own", "weight": 0.5, "gate": ""},
            "patch_size": 0.0,
        }
    )
    parts = (*config.parts, part("lint", Findings(), 0.1))
    rewards = [await scorer(stage, *parts, store=store).score(calc.task, gold(calc))]
    made = scorer(stage, *parts, store=store)
    rewards.append(await made.score(calc.task, gold(calc)))
    assert (made.hits, made.judged, made.linted) == (3, 0, 0)
    assert (len(stage.judged), len(stage.linted), mark.read_text()) == (1, 1, "x")
    assert rewards[1].shared
    assert replace(rewards[0], seconds=0, shared=True, scores=()) == replace(
        rewards[1], seconds=0, scores=()
    )
    assert [replace(score, seconds=0) for score in rewards[0].scores] == [
        replace(score, seconds=0) for score in rewards[1].scores
    ]
    await anyio.Path(library).write_text(OWN.replace("MARK", str(mark)) + "# another\n")
    again = scorer(stage, *parts, store=store)
    await again.score(calc.task, gold(calc))
    assert mark.read_text() == "xx"  # the code is another


OWN = """
from dataclasses import dataclass
from typing import ClassVar
from patchgym.rewards import Component, Measurement

@dataclass(frozen=True, kw_only=True)
class Own(Component):
    heavy: ClassVar[bool] = True

    def measure(self, scene):
        with open("MARK", "a") as file:
            file.write("x")
        return Measurement(value=0.5, evidence={"files": [f.path for f in scene.change.files]})
"""


async def test_conduct_is_measured_for_every_rollout(calc: CalcRepository, stage: Stage) -> None:
    made = scorer(stage, TESTS, part("turns", Turns(), 1.0))
    totals = [
        (await made.score(calc.task, gold(calc), conduct)).total
        for conduct in (Conduct(turns=1), Conduct(turns=2), None)
    ]
    assert totals == pytest.approx([0.9, 0.8, 1.0])
    assert len(stage.judged) == 1


async def test_another_context_takes_another_verdict(
    calc: CalcRepository, stage: Stage, store: ScoreStore
) -> None:
    for context in ("image 1", "image 2"):
        made = Scorer(
            RewardConfig(parts=(TESTS,)),
            verdict=stage.judge,
            repositories=Path("/nowhere"),
            deadline=60,
            store=store,
            context=context,
        )
        await made.score(calc.task, gold(calc))
    assert len(stage.judged) == 2


async def test_without_linters_a_component_that_needs_them_is_unknown(
    calc: CalcRepository, stage: Stage
) -> None:
    made = Scorer(
        RewardConfig(parts=(TESTS, part("lint", Findings()))),
        verdict=stage.judge,
        repositories=Path("/nowhere"),
        deadline=60,
    )
    reward = await made.score(calc.task, gold(calc))
    assert (reward.total, reward.scores[1].status) == (1.0, "unknown")
    assert "no sandbox with linters" in reward.scores[1].detail


async def test_a_diff_that_does_not_apply_is_judged_and_not_linted(
    calc: CalcRepository, stage: Stage
) -> None:
    made = scorer(stage, TESTS, part("lint", Findings(), gate=""))
    for diff in (b"nonsense", b"\xff" * 99, b"other nonsense"):
        reward = await made.score(calc.task, diff)
        assert "the diff does not apply: no file is named" in reward.scores[1].detail
    assert (len(stage.judged), stage.linted) == (3, [])


async def test_an_empty_diff_is_judged_and_not_linted(calc: CalcRepository, stage: Stage) -> None:
    stage.verdict = lambda task: Verdict(status="unresolved", evidence="empty_patch")
    made = scorer(stage, TESTS, part("lint", Findings(), gate=""))
    reward = await made.score(calc.task, b"")
    assert (reward.total, stage.judged, stage.linted) == (0.0, [b""], [])
    assert [score.value for score in reward.scores] == [0.0, 0.0]


async def test_a_repository_that_can_not_be_read_makes_all_unknown(
    calc: CalcRepository, stage: Stage
) -> None:
    lost = replace(calc.task, repository="/nowhere/at/all")
    reward = await scorer(stage, TESTS, part("other", Gives())).score(lost, gold(calc))
    assert (reward.total, reward.verdict.evidence, stage.judged) == (None, "infra", [])
    assert {score.status for score in reward.scores} == {"unknown"}
    assert "no git repository" in reward.verdict.detail
