"""Whole runs: what is filed and what is tried again, and the same tasks whatever the jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from git_history import History

from patchgym.datasets.environment import Environment
from patchgym.datasets.images import TaskImages
from patchgym.datasets.mining import (
    Candidate,
    Decision,
    Dropped,
    Environments,
    Mined,
    MiningConfig,
    MiningError,
    NoEnvironment,
    Progress,
    SameEnvironment,
    Store,
    mine,
    plan,
    take_over,
    undone,
    write,
)
from patchgym.sandbox import ImageError, ImageStore, Pool, SandboxLost, SandboxSpec


class Failing:
    """Environments that can't be made; which error is asked for each time."""

    key = "failing"

    def __init__(self, error: Callable[[Candidate], Exception]) -> None:
        self._error = error
        self.asked: list[str] = []

    async def of(self, candidate: Candidate) -> Environment:
        self.asked.append(candidate.commit.message)
        raise self._error(candidate)


class Quiet:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Decision | str] = []

    def looked(self, done: int, total: int) -> None: ...

    def planned(self, total: int, taken_over: int) -> None: ...

    def started(self, candidate: Candidate) -> None: ...

    async def finished(self, candidate: Candidate, outcome: Decision | str) -> None:
        self.heard.append(outcome)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Six commits, five of them candidates, four of those tasks."""
    made = History(tmp_path / "own" / "numbers")
    made.commit("0", {"n.py": "N = 0\n", "conftest.py": ""})
    for number in range(1, 6):
        wanted = number if number != 3 else 2
        test = f"from n import N\n\n\ndef test_{number}():\n    assert N >= {wanted}\n"
        made.commit(f"{number}", {"n.py": f"N = {number}\n", f"test_{number}.py": test})
    return made


async def run(
    history: History,
    out: Path,
    environments: Environments,
    pool: Pool | None = None,
    images: ImageStore | None = None,
    **settings: int,
) -> Mined:
    config = MiningConfig(repeats=1, **settings)  # type: ignore[arg-type]
    progress = Progress()
    with Store(out) as store:
        planned = await plan(history.folder, store, config, environments.key, Quiet())
        take_over(planned, progress, Quiet())
        try:
            if undone(planned, progress, config):
                # environments that fail come before any use of a pool
                await mine(
                    planned, cast(Pool, pool), TaskImages(cast(ImageStore, images)),
                    environments, store, config, Quiet(), progress,
                )  # fmt: skip
        finally:
            mined = write(planned, progress, store, config, 0)
    return mined


async def test_a_commit_without_an_environment_is_not_asked_again(
    history: History, tmp_path: Path
) -> None:
    out = tmp_path / "tasks.jsonl"
    source = Failing(lambda _: NoEnvironment("no such library"))
    mined = await run(history, out, source)
    assert mined.dropped == {"environment": 5, "root": 1}
    assert mined.only_environments_fail
    assert mined.decisions[0].dropped == Dropped(reason="environment", detail="no such library")
    assert source.asked == ["5", "4", "3", "2", "1"]
    again = await run(history, out, source)
    assert again.taken_over == 5
    assert len(source.asked) == 5


@pytest.mark.parametrize("error", [NoEnvironment("away", lasting=False), ImageError("away")])
async def test_what_may_pass_is_asked_again(
    history: History, tmp_path: Path, error: Exception
) -> None:
    source = Failing(lambda _: error)
    for times in (1, 2):
        mined = await run(history, tmp_path / "tasks.jsonl", source)
        assert mined.dropped == {"environment": 5, "root": 1}
        assert len(source.asked) == 5 * times


async def test_a_machine_that_fails_decides_nothing(history: History, tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    some = Failing(
        lambda found: SandboxLost("gone") if found.commit.message < "4" else NoEnvironment("no")
    )
    mined = await run(history, out, some)
    assert list(mined.undecided.values()) == ["gone"] * 3
    assert mined.dropped == {"environment": 2, "root": 1}
    report = json.loads((tmp_path / "tasks.jsonl.work" / "report.json").read_text())
    assert report["looked_at"] == 6
    assert len(report["undecided"]) == 3
    assert not (tmp_path / "tasks.jsonl.work" / "state.json").exists()


async def test_a_machine_that_goes_on_failing_ends_the_run(
    history: History, tmp_path: Path
) -> None:
    source = Failing(lambda _: SandboxLost("gone"))
    with pytest.raises(ExceptionGroup) as caught:
        await run(history, tmp_path / "tasks.jsonl", source)
    assert caught.group_contains(MiningError, match="failed 5 candidates in a row, at last with: g")


@pytest.mark.docker
@pytest.mark.slow
async def test_the_same_tasks_whatever_the_jobs(
    history: History, tmp_path: Path, docker_image: str
) -> None:
    written = []
    spec = SandboxSpec(image=docker_image, disk_mib=32)
    async with ImageStore() as images, Pool(spec, size=2) as pool:
        for jobs in (2, 1):
            out = tmp_path / f"jobs{jobs}.jsonl"
            mined = await run(history, out, SameEnvironment(), pool, images, jobs=jobs, max_tasks=3)
            assert [row["id"][-12:] for row in mined.rows] == [
                history.git("rev-parse", f"HEAD~{back}")[:12] for back in (0, 1, 3)
            ]
            assert mined.dropped == {"not-broken": 1}
            written.append(out.read_bytes())
    assert written[0] == written[1]
    assert [json.loads(line)["fail_to_pass"] for line in written[0].splitlines()] == [
        ["test_2.py::test_2"], ["test_4.py::test_4"], ["test_5.py::test_5"],
    ]  # fmt: skip
