"""Lint reports of diffs, from real linters in real sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from calc_repository import BASE
from calc_task import CalcRepository

from patchgym.datasets.task import Task, TaskError, bundled_tasks
from patchgym.rewards import LintSource
from patchgym.rewards.lint_source import distinct
from patchgym.sandbox import (
    Bandit,
    LeaseTimeout,
    Linter,
    LintReport,
    PatchError,
    Pool,
    Ruff,
    SandboxError,
    SandboxSpec,
    lint_spec,
)

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
WAIT = 120.0
LIBRARY = "calc/arithmetic.py"
INSECURE = b"import os\n\n\ndef go(name):\n    return eval(name)\n"


@pytest.fixture
async def pool(lint_image: str) -> AsyncIterator[Pool]:
    async with Pool(lint_spec(lint_image), size=1) as pool:
        yield pool


@pytest.fixture
def calc(tmp_path: Path) -> CalcRepository:
    return CalcRepository(tmp_path / "calc")


def rules(report: LintReport) -> set[tuple[str, str, str]]:
    return {(each.tool, each.rule, each.path) for each in report.new}


async def test_what_a_diff_brings_is_found_in_repositories_and_bundled_tasks(
    pool: Pool, calc: CalcRepository, tmp_path: Path
) -> None:
    source = LintSource(pool, tmp_path / "repositories", WAIT)
    report = await source(calc.task, calc.diff({**BASE, "new.py": INSECURE}), (Ruff(), Bandit()))
    assert {("ruff", "F401", "new.py"), ("ruff", "S307", "new.py")} <= rules(report)
    assert any(tool == "bandit" for tool, _, _ in rules(report))
    assert report.files == ("new.py",) and report.complete

    task = bundled_tasks("train")[0]
    clean = await source(task, task.gold_patch.encode(), (Ruff(),))
    assert clean.complete and len(clean.files) == 1


async def test_a_diff_that_does_not_apply_is_refused_with_the_reason(
    pool: Pool, calc: CalcRepository, tmp_path: Path
) -> None:
    source = LintSource(pool, tmp_path, WAIT)
    with pytest.raises(PatchError, match="no file is named"):
        await source(calc.task, b"nonsense", (Ruff(),))
    with pytest.raises(PatchError, match="No such file"):
        await source(calc.task, b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", (Ruff(),))


async def test_a_repository_that_is_not_there_is_named(
    pool: Pool, calc: CalcRepository, tmp_path: Path
) -> None:
    source = LintSource(pool, tmp_path, WAIT)
    with pytest.raises(TaskError, match="is no git repository"):
        await source(replace(calc.task, repository="/nowhere"), b"x", (Ruff(),))


class Loses(LintSource):
    """Loses the sandbox of its first attempts."""

    left = 0
    made = 0

    async def _attempt(
        self, task: Task, diff: bytes, linters: Sequence[Linter], folder: Path
    ) -> LintReport:
        self.made += 1
        if self.left:
            self.left -= 1
            async with self._pool.lease(timeout=WAIT) as sandbox:
                await anyio.run_process(["docker", "rm", "-f", sandbox.name])
                await sandbox.checkout(folder, task.base_commit)
        return await super()._attempt(task, diff, linters, folder)


async def test_a_sandbox_that_is_lost_is_replaced_once(
    pool: Pool, calc: CalcRepository, tmp_path: Path
) -> None:
    diff = calc.diff({**BASE, "new.py": INSECURE})
    source = Loses(pool, tmp_path, WAIT)
    source.left = 1
    assert (await source(calc.task, diff, (Ruff(),))).new
    source.left, source.made = 9, 0
    with pytest.raises(SandboxError):
        await source(calc.task, diff, (Ruff(),))
    assert source.made == 2


async def test_no_sandbox_in_time_is_an_infrastructure_failure(
    calc: CalcRepository, tmp_path: Path, docker_image: str
) -> None:
    async with Pool(SandboxSpec(image=docker_image), size=1) as pool:
        source = LintSource(pool, tmp_path, WAIT, lease_timeout=0.05)
        async with pool.lease(timeout=WAIT):
            with pytest.raises(LeaseTimeout):
                await source(calc.task, calc.task.gold_patch.encode(), (Ruff(),))


def test_of_two_linters_with_one_name_the_first_runs() -> None:
    first, second = Ruff(), Ruff(select=("S",))
    assert distinct([first, Bandit(), second]) == (first, Bandit())
    assert distinct([]) == ()
