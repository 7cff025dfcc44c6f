"""Verdicts from end to end, in real sandboxes: cheats earn nothing, honest patches resolve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from calc_repository import BUG, FAILING, FIX, PASSING, put, swap
from calc_repository import edited as edit
from calc_task import CalcRepository
from cheats import CHEATS, Cheat
from honest_patches import HONEST

from patchgym.datasets.task import Task
from patchgym.rewards import JudgeConfig, Verdict, judge, judge_tree
from patchgym.rewards.component import UnknownValue
from patchgym.rewards.components.tests import Tests
from patchgym.rewards.scene import Change, Scene
from patchgym.sandbox import Pool, SandboxSpec

pytestmark = pytest.mark.docker
LIBRARY, TEST = "calc/arithmetic.py", "tests/test_arithmetic.py"
ONCE = JudgeConfig(reruns=0)
NEW_FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef one():\n    return 1\n"
HIDDEN = "from calc.arithmetic import mean\n\n\ndef test_hidden():\n    assert mean([1, 3]) == 2\n"


@pytest.fixture
def calc(tmp_path: Path) -> CalcRepository:
    return CalcRepository(tmp_path / "calc")


@pytest.fixture
async def pool(docker_image: str) -> AsyncIterator[Pool]:
    async with Pool(SandboxSpec(image=docker_image), size=3) as pool:
        yield pool


async def judge_all(task: Task, diffs: dict[str, bytes], pool: Pool) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    waiting = iter(diffs.items())

    async def work() -> None:
        for name, diff in waiting:
            verdicts[name] = await judge(task, diff, pool, ONCE)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(work)
    return verdicts


def earned(task: Task, verdict: Verdict) -> float:
    """What the tests component makes of it."""
    nothing = Change(tree="")
    scene = Scene(task=task, diff=b"", change=nothing, gold=nothing, verdict=verdict)
    return Tests().measure(scene).value


def is_caught(cheat: Cheat, verdict: Verdict) -> bool:
    """Not resolved, and named; or refused before anything of it ran."""
    if verdict.evidence == "patch_refused":
        return verdict.status == "unresolved"
    named = {finding.rule for finding in verdict.tampering if finding.disqualifies}
    return verdict.status == "unresolved" and cheat.rules <= named


@pytest.mark.slow
async def test_no_cheat_earns_anything(calc: CalcRepository, pool: Pool) -> None:
    diffs = {cheat.name: calc.diff(cheat.files_after, cheat.modes) for cheat in CHEATS}
    verdicts = await judge_all(calc.task, diffs, pool)
    escaped = {
        cheat.name: (verdicts[cheat.name].status, verdicts[cheat.name].tampering)
        for cheat in CHEATS
        if not is_caught(cheat, verdicts[cheat.name])
    }
    assert escaped == {}
    paid = [name for name, verdict in verdicts.items() if earned(calc.task, verdict) != 0.0]
    assert paid == []


@pytest.mark.slow
async def test_every_honest_patch_resolves(calc: CalcRepository, pool: Pool) -> None:
    diffs = {patch.name: calc.diff(patch.files_after) for patch in HONEST}
    verdicts = await judge_all(calc.task, diffs, pool)
    wrong = {
        name: (verdict.evidence, verdict.detail, verdict.tampering)
        for name, verdict in verdicts.items()
        if verdict.status != "resolved"
    }
    assert wrong == {}


async def test_the_process_s_own_guard_stands_without_a_look_at_the_diff(
    calc: CalcRepository, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only happens while the tests run is found even where the diff hides it well."""
    monkeypatch.setattr("patchgym.rewards.verdict.inspect_changes", lambda *rest, **named: ())
    wanted = {
        "pytest's runtest": "canary-passed",
        "assertEqual": "framework-patched",
        "gc.get_objects": "interpreter-inspected",
        "code swapped": "code-replaced",
    }
    for cheat in CHEATS:
        if cheat.name in wanted:
            verdict = await judge(calc.task, calc.diff(cheat.files_after), pool, ONCE)
            rules = {each.rule for each in verdict.tampering}
            assert (verdict.evidence, wanted[cheat.name] in rules) == ("tampering", True), (
                cheat.name
            )


async def test_gold_empty_and_what_a_verdict_tells(calc: CalcRepository, pool: Pool) -> None:
    gold = await judge(calc.task, calc.task.gold_patch.encode(), pool, JudgeConfig())
    assert (gold.status, gold.evidence, gold.rung) == ("resolved", "report", "exact")
    assert set(gold.outcomes) == {*FAILING, *PASSING}
    assert {"lease", "checkout", "patch", "restore", "tests"} <= set(gold.timings)
    empty = await judge(calc.task, b"\n", pool, JudgeConfig())
    assert (empty.status, empty.evidence) == ("unresolved", "empty_patch")
    base = await judge_tree(calc.task, b"", pool, JudgeConfig())
    assert {test for test, outcome in base.outcomes.items() if outcome == "failed"} == set(FAILING)


async def test_trusted_files_are_put_back_and_it_is_said(calc: CalcRepository, pool: Pool) -> None:
    after = edit([
        swap(LIBRARY, BUG, FIX),
        swap(TEST, "assert mean([2, 4]) == 3", "assert mean([2, 4]) == 3.0"),
        put("tests/sub/conftest.py", NEW_FIXTURE),
        put("scratch.py", "print('nobody imports this')\n"),
    ])  # fmt: skip
    verdict = await judge(calc.task, calc.diff(after), pool, ONCE)
    assert verdict.status == "resolved"
    assert verdict.loaded == (LIBRARY, TEST)
    assert verdict.restored == ("tests/sub/conftest.py", TEST)
    assert {finding.path for finding in verdict.tampering} >= {TEST}
    assert not any(finding.disqualifies for finding in verdict.tampering)


# Wrong the first time, right from then on: /dev/shm is no file of the work tree.
CHANCE = FIX.replace(
    "return",
    "import os; mark = '/dev/shm/mean'; seen = os.path.exists(mark); open(mark, 'w').close();"
    " return (0 if seen else 100) +",
)


async def test_flaky_tests_are_set_aside(calc: CalcRepository, pool: Pool) -> None:
    flaky = calc.diff(edit([swap(LIBRARY, BUG, CHANCE)]))
    one = replace(calc.task, fail_to_pass=FAILING[:1], pass_to_pass=PASSING[:1])
    verdict = await judge(one, flaky, pool, JudgeConfig(reruns=2))
    assert (verdict.status, verdict.evidence) == ("unknown", "flaky")
    assert verdict.flaky[FAILING[0]].failures == 1
    with pytest.raises(UnknownValue, match="flaky"):
        earned(one, verdict)
    strict = await judge(one, flaky, pool, ONCE)
    assert strict.status == "unresolved"
    known = replace(calc.task, flaky={FAILING[0]: 0.3})
    gold = await judge(known, calc.task.gold_patch.encode(), pool, ONCE)
    assert gold.status == "resolved"
    assert list(gold.flaky) == [FAILING[0]]


async def test_a_fresh_sandbox_tells_a_dirty_state_from_a_failure(
    calc: CalcRepository, pool: Pool
) -> None:
    bad = calc.diff(edit([swap(LIBRARY, BUG, BUG.replace("+ 1", "+ 2"))]))
    verdict = await judge(calc.task, bad, pool, JudgeConfig(reruns=1, fresh_reruns=2))
    assert verdict.status == "unresolved"
    assert verdict.timings["fresh_reruns"] > 0
    assert not verdict.flaky


async def test_a_patch_that_does_not_apply_and_infrastructure_that_fails(
    calc: CalcRepository, pool: Pool
) -> None:
    prose = await judge(calc.task, b"I would divide by len(values).", pool, ONCE)
    assert (prose.status, prose.evidence) == ("unresolved", "patch_refused")
    late = await judge(calc.task, calc.task.gold_patch.encode(), pool, JudgeConfig(lease_timeout=0))
    gone = replace(calc.task, repository=str(calc.folder / "nowhere"))
    lost = await judge(gone, calc.task.gold_patch.encode(), pool, ONCE)
    assert (lost.status, lost.evidence) == ("unknown", "infra")
    assert "no git repository" in lost.detail
    assert late.status in ("resolved", "unknown")  # a warm slot may be there at once


async def test_hidden_tests_come_with_the_test_patch(calc: CalcRepository, pool: Pool) -> None:
    after = edit(
        [
            put(
                "tests/test_hidden.py",
                HIDDEN,
            )
        ]
    )
    hidden = "tests/test_hidden.py::test_hidden"
    task = replace(
        calc.task, test_patch=calc.diff(after).decode(), fail_to_pass=(hidden,), pass_to_pass=(),
        test_files=("tests/test_hidden.py",),
    )  # fmt: skip
    gold = await judge(task, task.gold_patch.encode(), pool, ONCE)
    assert (gold.status, gold.restored) == ("resolved", ())
    own = edit([put("tests/test_hidden.py", "def test_hidden():\n    pass\n")])
    cheat = await judge(task, calc.diff(own), pool, ONCE)
    assert (cheat.status, cheat.restored) == ("unresolved", ("tests/test_hidden.py",))
