"""The pages of runs in every state that a run can be left in."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from dashboard_runs import (
    client_of,
    event,
    finished,
    meta,
    new_run,
    rollouts,
    set_version,
    state,
    step,
    write,
)
from starlette.testclient import TestClient

from patchgym.sandbox.reaper import current_owner
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.ledger.schema import SCHEMA_VERSION
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.sft.measure import Measured
from patchgym.trainer.sft.record import SftRecorder

PAGES = ("", "/steps", "/tasks", "/task?id=sum/1%2B1", "/events", "/settings")
HOSTILE = "<script>alert(1)</script>"


def page(client: TestClient, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


def words(html: str) -> str:
    """What a person reads of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def test_every_page_of_a_finished_run_is_there(tmp_path: Path) -> None:
    finished(tmp_path)
    client = client_of(tmp_path)
    for path in PAGES:
        assert "done" in page(client, f"/runs/done{path}")


def test_the_overview_says_what_the_ledger_says(tmp_path: Path) -> None:
    finished(tmp_path, steps=3)
    said = words(page(client_of(tmp_path), "/runs/done"))
    assert "3 / 3" in said
    assert "50% → 75%" in said
    assert "train 6 50.0% 12 18" in said
    assert "Learner idle 20% sampling 20%" in said


def test_there_are_no_runs_yet(tmp_path: Path) -> None:
    assert "There are no runs in" in words(page(client_of(tmp_path), "/runs"))
    assert "There are no runs in" in words(page(client_of(tmp_path / "missing"), "/runs"))


def test_a_run_that_is_not_there_is_a_page_that_says_so(tmp_path: Path) -> None:
    outside = finished(tmp_path, "outside")
    root = tmp_path / "root"
    root.mkdir()
    client = client_of(root)
    for name in ("none", "..%2Foutside", "%2E%2E", "a%00b", "..", str(outside.path)):
        page(client, f"/runs/{name}/steps", 404)
    assert "there is no run 'none'" in words(page(client, "/runs/none", 404))


def test_latest_is_the_newest_run(tmp_path: Path) -> None:
    for number, name in enumerate(("older", "newer")):
        folder = finished(tmp_path, name, steps=1)
        os.utime(folder.config, (1000 + number, 1000 + number))
    assert "newer" in page(client_of(tmp_path), "/runs/latest")


def test_a_run_that_has_not_begun_says_so(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "early")
    client = client_of(tmp_path)
    assert "its ledger is not" in words(page(client, "/runs/early", 404))
    assert "it has no ledger yet" in words(page(client, "/runs"))
    write(folder, state("running"))
    for path in PAGES[:3]:
        page(client, f"/runs/early{path}")
    assert "No step is finished yet" in words(page(client, "/runs/early"))
    assert "no rollout of a task" in words(page(client, "/runs/early/task?id=x", 404))


def heartbeat(folder: RunFolder, *, pid: int) -> None:
    """Leave the sign of life of a process."""
    labels = current_owner().labels() | {"patchgym.owner.pid": str(pid)}
    if pid != os.getpid():
        labels["patchgym.owner.started"] = "1"
    (folder.path / "heartbeat.json").write_text(json.dumps(labels))


def test_a_run_that_goes_on_and_one_that_was_killed_are_told_apart(tmp_path: Path) -> None:
    alive, killed = finished(tmp_path, "alive"), finished(tmp_path, "killed")
    for folder, pid in ((alive, os.getpid()), (killed, 999_999_999)):
        write(folder, state("running"))
        heartbeat(folder, pid=pid)
    client = client_of(tmp_path)
    assert "running" in words(page(client, "/runs/alive"))
    said = words(page(client, "/runs/killed"))
    assert "gone since" in said and "--resume killed" in said
    assert "gone since" in words(page(client, "/runs?state=gone"))
    assert "1 to 1 of 1 runs" in words(page(client, "/runs?state=gone"))


def test_an_evaluation_has_its_rollouts_and_no_steps(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "judged")
    (folder.path / "evaluation.json").write_text("{}")
    write(folder, state("finished", 60.0), rollouts("g00000", purpose="evaluation"))
    client = client_of(tmp_path)
    said = words(page(client, "/runs/judged"))
    assert "judged finished evaluation" in said
    assert "evaluation 2 50.0%" in said
    assert "An evaluation makes no steps" in words(page(client, "/runs/judged/steps"))
    assert "1 to 1 of 1 runs" in words(page(client, "/runs?kind=evaluation"))


def test_a_supervised_run_shows_its_losses(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "imitated")
    (folder.path / "sft.toml").touch()
    write(folder, state("running"))
    client = client_of(tmp_path)
    page(client, "/runs/imitated")  # before its tables are made

    def recorded(ledger: Ledger) -> None:
        recorder = SftRecorder(ledger)
        recorder.begin(0, {"steps": 2})
        for number, loss in enumerate((0.75, 0.5)):
            recorder.step(number, {"loss": loss, "grad_norm": 0.1, "learned": 70})
            recorder.measured(number, Measured(loss=loss + 1, accuracy=0.5, tokens=10))

    write(folder, recorded)
    said = words(page(client, "/runs/imitated"))
    assert "2 / 2" in said
    assert "1.750 → 1.500" in said
    assert "0.5000" in page(client, "/runs/imitated/steps")


def test_what_a_run_does_now_is_told_as_long_as_it_goes_on(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    now = {
        "at": time.time(), "phase": "training", "done": 0, "total": 0, "tokens_per_second": 12_345,
        "learner": {"doing": "waiting", "seconds": 41.0}, "stages": {"tool run_tests": 3},
        "waits_for": f"3 rollouts of {HOSTILE}", "account": {},
    }  # fmt: skip
    heartbeat(folder, pid=os.getpid())
    write(folder, state("running"), meta("now", now))
    html = page(client_of(tmp_path), "/runs/done")
    assert HOSTILE not in html
    said = words(html)
    assert "Now training · learner waiting since 41 s · in flight: 3 tool run_tests" in said
    assert "12.3k tokens a second 3 rollouts of" in said
    write(folder, meta("now", {**now, "at": time.time() - 60}))
    assert "in flight" not in words(page(client_of(tmp_path), "/runs/done"))
    write(folder, meta("now", now), state("finished"))
    assert "in flight" not in words(page(client_of(tmp_path), "/runs/done"))


def test_why_a_run_waits_stands_on_its_page(tmp_path: Path) -> None:
    finished(tmp_path)
    said = words(page(client_of(tmp_path), "/runs/done"))
    assert "Why it waits, last 3 steps" in said
    assert "20% sampling" in said


def test_why_a_run_failed_stands_on_its_page(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    end = {"how": "failed", "stage": "rollouts", "kind": "ValueError", "words": HOSTILE, "step": 2}
    write(folder, state("failed"), meta("end", end))
    html = page(client_of(tmp_path), "/runs/done")
    assert "Failed after step 2, in rollouts: ValueError: &lt;script&gt;" in html
    assert HOSTILE not in html


def first_version(folder: RunFolder) -> None:
    """Take out of a ledger all that its first version did not have."""
    with closing(sqlite3.connect(folder.ledger, isolation_level=None)) as connection:
        kept = (
            "id, purpose, group_id, task_id, member, stop_reason, error, reward, verdict, turns, "
            "sampled_tokens, policy_version, seconds, detail, finished"
        )
        for table, columns in (
            ("rollouts", kept),
            ("groups", "id, task_id, number, state, reason, step, members, changed"),
            ("steps", "step, metrics"),
        ):
            connection.execute(f"CREATE TABLE old AS SELECT {columns} FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE old RENAME TO {table}")
        for table in ("turns", "scores", "tasks"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 0")


def test_an_old_run_is_shown_with_a_word_on_what_it_lacks(tmp_path: Path) -> None:
    folder = finished(tmp_path, "old")
    first_version(folder)
    before = folder.ledger.read_bytes()
    client = client_of(tmp_path)
    for path in PAGES:
        page(client, f"/runs/old{path}")
    assert "An older patchgym made this run" in words(page(client, "/runs/old"))
    assert folder.ledger.read_bytes() == before


def test_a_newer_run_is_refused_with_both_versions_and_the_list_goes_on(tmp_path: Path) -> None:
    set_version(finished(tmp_path, "newer"), SCHEMA_VERSION + 1)
    finished(tmp_path, "usual")
    client = client_of(tmp_path)
    said = words(page(client, "/runs/newer", 422))
    assert f"version {SCHEMA_VERSION + 1}" in said and "update patchgym" in said
    listed = words(page(client, "/runs"))
    assert "usual" in listed and "update patchgym" in listed


def test_a_damaged_ledger_is_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    folder = finished(tmp_path, "broken")
    content = bytearray(folder.ledger.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    folder.ledger.write_bytes(content)
    client = client_of(tmp_path)
    assert "damaged" in words(page(client, "/runs/broken", 422))
    assert "damaged" in words(page(client, "/runs"))
    folder.ledger.write_bytes(b"no ledger at all")
    assert "not a run's ledger" in words(page(client, "/runs/broken", 422))


def test_run_toml_that_can_not_be_read_costs_the_settings_and_no_more(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    folder.config.write_text("[run\nsteps = ")
    client = client_of(tmp_path)
    assert "can't be read" in words(page(client, "/runs/done/settings"))
    page(client, "/runs/done")
    page(client, "/runs")


def test_names_are_escaped_wherever_they_stand(tmp_path: Path) -> None:
    folder = finished(tmp_path, HOSTILE.replace("/", "|"))
    write(
        folder,
        rollouts("g00090", HOSTILE),
        event("alarm", alarm=HOSTILE, words=HOSTILE, examples=[HOSTILE]),
        event("odd", what={"deep": [HOSTILE]}),
    )
    client = client_of(tmp_path)
    name = folder.path.name.replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    for path in ("/runs", f"/compare?run={name}&run={name}", *(f"/runs/{name}{p}" for p in PAGES)):
        html = page(client, path)
        assert "<script>" not in html, path
    assert "&lt;script&gt;" in page(client, f"/runs/{name}/tasks")


def test_settings_that_are_not_the_defaults_are_marked(tmp_path: Path) -> None:
    finished(tmp_path, steps=3)
    assert "steps 3 default 14" in words(page(client_of(tmp_path), "/runs/done/settings"))


def test_steps_are_sorted_by_any_column_with_what_is_missing_last(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(folder, step(0, 0.5), step(1, None), step(2, 0.25))
    client = client_of(tmp_path)

    def rewards(query: str) -> list[str]:
        rows = re.findall(r"<tr><td[^>]*>(\d+)</td>", page(client, f"/runs/run/steps{query}"))
        return [str(row) for row in rows]

    assert rewards("") == ["3", "2", "1"]
    assert rewards("?sort=step") == ["1", "2", "3"]
    assert rewards("?sort=reward") == ["3", "1", "2"]
    assert rewards("?sort=-reward") == ["1", "3", "2"]
    assert rewards("?sort=nonsense&page=99999999999") == ["3", "2", "1"]


def test_tasks_are_filtered_by_name_and_by_how_often_they_are_solved(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    write(
        folder,
        rollouts("g00000", "sum/never", solved=0),
        rollouts("g00001", "sum/always", solved=2),
        rollouts("g00002", "sum/sometimes", solved=1),
        rollouts("g00003", "difference/sometimes", solved=1),
    )
    client = client_of(tmp_path)

    def listed(query: str) -> set[str]:
        return set(
            re.findall(r">((?:sum|difference)/\w+)<", page(client, f"/runs/run/tasks{query}"))
        )

    assert listed("?solved=never") == {"sum/never"}
    assert listed("?solved=sometimes&q=SUM") == {"sum/sometimes"}
    assert len(listed("?sort=rate&page=7")) == 4
    assert listed("?q=%25") == set()


def test_a_task_shows_its_groups_and_its_evaluations(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")

    def evaluated(ledger: object) -> None:
        sql = "INSERT INTO evaluations VALUES ('before', 0, 'sum/1+1', ?, ?, ?)"
        for sample, resolved in enumerate((1, 0, None)):
            ledger.record(sql, (sample, resolved, f"e{sample}"))  # type: ignore[attr-defined]

    write(folder, rollouts("g00000"), rollouts("g00001", solved=2), evaluated)
    client = client_of(tmp_path)
    said = words(page(client, "/runs/run/task?id=sum/1%2B1"))
    assert "before 3 50%" in said
    history = client.get("/runs/run/task/history", params={"id": "sum/1+1"}).json()
    assert history == {"number": [0, 1], "rate": [0.5, 1.0], "reward": [0.5, 1.0]}


def test_events_can_be_filtered_and_name_their_rollouts(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    write(
        folder,
        event("alarm", alarm="hacking", words="too good", examples=["g00001-m0"]),
        event("stalled", seconds=120, report="first line\nthe rest"),
    )
    html = page(client_of(tmp_path), "/runs/done/events?kind=alarm")
    assert "too good" in html and "trajectories/g00001-m0" in html
    assert "first line" not in html
    assert "1 alarm, 1 stalled" in words(page(client_of(tmp_path), "/runs/done"))


def test_runs_are_compared_by_curves_and_by_the_settings_that_differ(tmp_path: Path) -> None:
    finished(tmp_path, "one", seed=1)
    finished(tmp_path, "two", seed=2)
    client = client_of(tmp_path)
    said = words(page(client, "/compare?run=one&run=two"))
    assert "run.seed 1 2" in said
    assert "run.steps" not in said
    series = client.get("/compare/series?run=one&run=two").json()
    assert [each["name"] for each in series] == ["one", "two"]
    assert series[0]["columns"]["reward"] == [0.25, 0.5, 0.75]
    assert "Which runs?" in words(page(client, "/compare?run=one"))
    page(client, "/compare?run=one&run=gone", 404)


def test_sandboxes_are_told_from_the_ledger_where_no_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    finished(tmp_path)
    said = words(page(client_of(tmp_path), "/sandboxes"))
    assert "The container engine does not answer" in said
    assert "done finished" in said


def test_a_name_that_is_no_text_does_not_hide_the_other_runs(tmp_path: Path) -> None:
    shutil.copytree(
        finished(tmp_path, "usual").path, f"{tmp_path}/{os.fsdecode(bytes((111, 255)))}"
    )
    assert "1 to 1 of 1 runs" in words(page(client_of(tmp_path), "/runs"))


def test_a_run_whose_folder_goes_away_meanwhile_is_a_page(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    client = client_of(tmp_path)
    page(client, "/runs/done")
    shutil.rmtree(folder.path)
    page(client, "/runs/done", 404)
    page(client, "/runs/done/now", 404)
