"""What a page that is looked at asks again, and what is kept between looks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from dashboard_runs import (
    client_of,
    finished,
    found,
    meta,
    new_run,
    rollouts,
    state,
    step,
    write,
)

from patchgym.trainer.dashboard.runs import open_named
from patchgym.trainer.dashboard.series import read_series
from patchgym.trainer.dashboard.totals import read_totals
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.run_folder import RunFolder


def unchanged(root: Path, seen: str) -> bool:
    """Whether there is nothing new for whoever has `seen`; a file that is this fresh is read again
    until the clock has ticked."""
    client = client_of(root)
    for _ in range(100):
        answer = client.get("/runs/run/now", params={"seen": seen})
        if answer.status_code == 204:
            return True
        seen = answer.json()["seen"]
    return False


def test_nothing_is_sent_while_nothing_is_written(tmp_path: Path) -> None:
    folder = finished(tmp_path, "run")
    first = found(client_of(tmp_path), "/runs/run/now")
    assert unchanged(tmp_path, first["seen"])
    write(folder, rollouts("g00050"))
    assert (
        client_of(tmp_path).get("/runs/run/now", params={"seen": first["seen"]}).status_code == 200
    )


def test_a_look_brings_the_parts_and_the_steps_that_are_new(tmp_path: Path) -> None:
    folder = finished(tmp_path, "run", steps=3)
    client = client_of(tmp_path)
    first = found(client, "/runs/run/now")
    assert first["series"]["start"] == 0
    assert first["series"]["columns"]["step"] == [1, 2, 3]
    write(folder, step(3, 0.875))
    query = {"seen": first["seen"], "origin": first["series"]["origin"], "known": 3}
    fresh = found(client, "/runs/run/now", **query)
    assert fresh["series"]["start"] == 3
    assert fresh["series"]["columns"]["reward"] == [0.875]
    assert "4 / 3" in fresh["parts"]["part-stats"]


def test_a_run_that_goes_on_is_asked_more_often(tmp_path: Path) -> None:
    folder = finished(tmp_path, "run")
    calm = found(client_of(tmp_path), "/runs/run/now")["every"]
    write(folder, state("running"))
    assert found(client_of(tmp_path), "/runs/run/now")["every"] < 500 < calm


def test_rollouts_show_before_their_step_is_made(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(folder, state("running"), rollouts("g00000", size=4))
    parts = found(client_of(tmp_path), "/runs/run/now")["parts"]
    assert "g00000-m3" in parts["part-latest"]
    assert "1 / 8" in parts["part-stats"]  # a group is ready, of the queue's eight


def columns(root: Path) -> Mapping[str, Any]:
    with open_named(root, "run") as run:
        return read_series(run).columns


def test_steps_that_were_taken_back_are_read_anew(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(folder, *(step(number, 0.25) for number in range(4)))
    with open_named(tmp_path, "run") as run:
        before = read_series(run)

    def taken_back(ledger: Ledger) -> None:
        ledger.restore(2)

    write(folder, taken_back, step(2, 0.75))
    with open_named(tmp_path, "run") as run:
        after = read_series(run)
    assert after.columns["reward"] == [0.25, 0.25, 0.75]
    assert after.origin != before.origin
    assert after.since(before.origin, 4)["start"] == 0


def test_waits_of_a_step_are_differences_also_past_a_resume(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(
        folder,
        step(0, clock_seconds=10.0, waited_seconds={"sampling": 4.0}),
        step(1, clock_seconds=30.0, waited_seconds={"sampling": 5.0, "scoring": 2.0}),
        step(2, clock_seconds=8.0, waited_seconds={"scoring": 1.0}),  # another process
        step(3, clock_seconds=None, waited_seconds=None),
    )
    with open_named(tmp_path, "run") as run:
        series = read_series(run)
    assert series.waits == {"sampling": [4.0, 1.0, 0.0, 0.0], "scoring": [0.0, 2.0, 1.0, 0.0]}
    assert series.columns["seconds"] == [10.0, 20.0, 8.0, None]
    assert series.columns["idle"] == [0.4, 0.15, 0.125, None]


def test_what_the_time_went_to_is_told_by_the_account_of_a_step(tmp_path: Path) -> None:
    folder = finished(tmp_path, "run")
    stages = {"lease wait": {"seconds": 8.0, "buckets": {"16": 2}}}
    path = [{"stage": "lease wait", "task": "sum/1+1", "rollout": "g00000-m0", "seconds": 6.0}]
    account = {
        "seconds": 10.0, "learner": {"training": 4.0, "lease wait": 6.0}, "sampler": {},
        "path": path, "behind": {}, "sampling": 1.0, "stages": stages,
    }  # fmt: skip
    write(folder, step(3, idle=account), meta("idle", {
        "seconds": 10.0, "idle_share": 0.6, "idle_reasons": {"lease wait": 0.6},
        "busy": {"training": 4.0},
        "sampler": {"idle_share": 0.75, "idle_reasons": {"the learner trains": 0.75}},
    }))  # fmt: skip
    assert columns(tmp_path)["idle"][-1] == 0.6
    parts = found(client_of(tmp_path), "/runs/run/now")["parts"]
    assert "the learner trains <b>75%</b>" in parts["part-bars"]
    assert "generating <b>25%</b>" in parts["part-bars"]
    assert "stage lease wait" in parts["part-times"]
    assert "g00000-m0" in parts["part-times"]


def sums(folder: RunFolder) -> tuple[int, int, float]:
    with open_named(folder.path.parent, folder.path.name) as run:
        totals = read_totals(run)
    known = totals.rollouts.total(), totals.sampled.total(), sum(totals.seconds.values())
    return known


def test_sums_grow_with_the_rollouts_and_notice_what_was_recorded_anew(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(folder, rollouts("g00000", size=3, purpose="before"))
    assert sums(folder) == (3, 6, 3.0)
    write(folder, rollouts("g00001", size=2, purpose="before"))
    assert sums(folder) == (5, 10, 5.0)
    write(folder, rollouts("g00000", size=3, solved=3, purpose="before"))
    assert sums(folder) == (5, 10, 5.0)
    with open_named(tmp_path, "run") as run:
        resolved = [n for key, n in read_totals(run).rollouts.items() if key[1] == "resolved"]
    assert sum(resolved) == 4


async def test_a_writer_is_not_held_up_by_whoever_looks(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    async with Ledger(folder.ledger) as ledger:
        step(0)(ledger)
        await ledger.flush()
        client = client_of(tmp_path)
        for number in range(1, 20):
            step(number)(ledger)
            await ledger.flush()
            answer = await anyio.to_thread.run_sync(lambda: found(client, "/runs/run/now"))
            assert len(answer["series"]["columns"]["step"]) == number + 1


def test_the_list_is_sent_again_when_a_run_changed(tmp_path: Path) -> None:
    folder = finished(tmp_path, "run")
    client = client_of(tmp_path)
    seen = found(client, "/list/now")["seen"]
    assert client.get("/list/now", params={"seen": seen}).status_code == 204
    write(folder, step(3, 0.9))
    fresh = found(client, "/list/now", seen=seen)
    assert "0.900" in fresh["parts"]["part-rows"]
