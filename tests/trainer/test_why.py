"""`runs why`: numbers of real ledgers, of simulated runs whose causes are known, in words."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from old_ledgers import first_version

from patchgym.sandbox.reaper import current_owner
from patchgym.trainer.cli import main
from patchgym.trainer.config import config_to_toml, load_config
from patchgym.trainer.heartbeat import heartbeat_path
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.simulation import Latency, Straggler, World, simulate
from patchgym.trainer.virtual_time import run_virtually
from patchgym.trainer.why import advise, lines_of, read_facts

TURNS = 3


def const(seconds: float) -> Latency:
    return Latency(spec=f"const:{seconds}")


WORLD = World(
    turns=TURNS,
    generation=const(0.2),
    reset=const(0.05),
    step=const(0.3),
    reward=const(0.1),
    update=const(1.0),
    learns=False,
)


def simulated(folder: Path, world: World, **more: object) -> RunFolder:
    """The folder of a run of five steps, in a world whose time is virtual."""
    values: dict[str, object] = {
        "run.steps": 5,
        "group.size": 4,
        "group.per_step": 2,
        "group.max_staleness": 0,
        "rollout.in_flight": 8,
        "rollout.max_turns": TURNS,
        "rollout.max_new_tokens": 24,
        "rollout.context_tokens": 256,
        "scoring.workers": 8,
        "learner.row_tokens": "[192]",
    }
    values.update({key.replace("__", "."): value for key, value in more.items()})
    config = load_config(None, [(key, str(value)) for key, value in values.items()])
    run_virtually(simulate, config, world, folder)
    (folder / "run.toml").write_text(config_to_toml(config))
    finish(folder)
    return RunFolder(folder)


def finish(folder: Path, state: str = "finished") -> None:
    connection = sqlite3.connect(folder / "run.sqlite")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('state', ?)", (json.dumps(state),))
    connection.commit()
    connection.close()


def test_slow_tests_are_named_with_their_share_and_their_percentiles(tmp_path: Path) -> None:
    slow = replace(WORLD, stragglers=1.0, straggler=Straggler(step=5.0))
    folder = simulated(tmp_path, slow)
    facts = read_facts(folder)
    # A step: 0.05 + 3 * 0.5 + 5 + 0.1 of waiting, then 1 of training.
    assert facts.learner["tool act"] == pytest.approx((3 * 0.3 + 5) / 7.65, abs=0.002)
    assert facts.idle_share == pytest.approx(6.65 / 7.65, abs=0.002)
    assert sum(facts.learner.values()) == pytest.approx(1)
    assert sum(facts.sampler.values()) == pytest.approx(1)
    assert len(facts.window.steps) == 4, "the very first is left out"
    advice = advise(facts)
    assert advice[0].words.startswith("77% of the time is spent in tool act, p50 0.32 s, p99 5.")
    assert "a few slow calls are the matter" in advice[0].words
    lines = lines_of(facts, advice)
    assert lines[0].startswith(f"{tmp_path.name}: finished, 5 of 5 steps; the last 4 took 31 s")
    assert "learner idle 87%: 87% waiting for groups" in lines
    assert any(line.startswith("   77% tool act  (p50 0.32 s, p95 ") for line in lines)
    assert facts.parts[0].stage == "tool act"
    assert facts.parts[0].rollout.endswith("-m0"), "the slow one"


def test_slots_are_advised_where_the_awaited_rollout_had_none(tmp_path: Path) -> None:
    facts = read_facts(simulated(tmp_path, WORLD, rollout__in_flight=2))
    found = {each.keys: each for each in advise(facts)}
    slots = found["rollout.in_flight",]
    # Four rollouts one after the other in each slot; only the last is the awaited one.
    assert slots.share == pytest.approx(3 * 1.55 / (4 * 1.55 + 0.1 + 1), abs=0.01)
    assert slots.words.startswith("in 64% of the time the awaited rollout had no slot yet: raise ")
    assert "rollout.in_flight from 2 to 3" in slots.words
    assert ("scoring.workers",) not in found
    assert ("sandbox.slots",) not in found


def test_turns_that_learner_and_sampler_take_are_told_where_staleness_forbids_more(
    tmp_path: Path,
) -> None:
    slow = replace(WORLD, update=const(2.0))
    found = {each.keys for each in advise(read_facts(simulated(tmp_path, slow)))}
    assert ("group.max_staleness",) in found
    assert ("rollout.in_flight",) not in found, "all rollouts of a step had slots"


def test_a_scorer_is_advised_where_rollouts_stand_in_line_for_one(tmp_path: Path) -> None:
    slow = replace(WORLD, reward=const(1.0))
    facts = read_facts(simulated(tmp_path, slow, scoring__workers=2))
    (scorers,) = [each for each in advise(facts) if "scoring.workers" in each.keys]
    assert "raise scoring.workers from 2 to 4" in scorers.words
    assert scorers.share == pytest.approx(3 / (1.55 + 4 + 1), abs=0.01)


def test_only_the_last_steps_count_when_that_is_asked(tmp_path: Path) -> None:
    folder = simulated(tmp_path, WORLD)
    facts = read_facts(folder, last=2)
    assert [step["step"] for step in facts.window.steps] == [3, 4]
    assert facts.seconds == pytest.approx(2 * 2.65, abs=0.01)


def why(folder: Path, *words: str) -> int:
    return main(["runs", "--folder", str(folder.parent), "why", folder.name, *words])


async def empty(folder: Path) -> None:
    async with Ledger(folder / "run.sqlite") as ledger:
        ledger.meta("state", "running")


async def test_a_run_without_a_step_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await empty(tmp_path)
    (tmp_path / "run.toml").write_text("[run]\nsteps = 7\n")
    assert why(tmp_path) == 0
    assert "0 of 7 steps" in (out := capsys.readouterr().out)
    assert "no step is over yet" in out


async def test_a_run_that_was_killed_says_since_when_it_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await empty(tmp_path)
    (tmp_path / "run.toml").write_text("")
    heartbeat_path(RunFolder(tmp_path)).write_text(
        json.dumps(replace(current_owner(), pid=2**22 - 3, started="1").labels())
    )
    os.utime(heartbeat_path(RunFolder(tmp_path)), (1e9, 1e9))
    assert why(tmp_path) == 0
    assert ": gone since 2001-09-" in capsys.readouterr().out


def test_a_run_of_the_first_version_is_taken_apart_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first_version(tmp_path / "run.sqlite", ROWS)
    (tmp_path / "run.toml").write_text("[old]\nkey = 1\n")
    assert why(tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "stopped"
    # Ten seconds and then ten more; of these it waited 4 and 7, and updates took 2 each.
    shares = {"tests": 11 / 20, "training": 4 / 20, "other work": 5 / 20}
    assert found["learner"]["shares"] == pytest.approx(shares)
    assert found["sampler"]["shares"] == {}
    assert [row["name"] for row in found["latencies"]["tasks"]] == ["t"]
    assert why(tmp_path) == 0
    assert "kept no account" in capsys.readouterr().out


ROWS = """
INSERT INTO meta VALUES ('state', '"stopped"');
INSERT INTO rollouts VALUES
    ('g00000-m0', 'train', 'g00000', 't', 0, 'submitted', '', 1.0, 'resolved', 2, 30, 0, 4.5, '',
     9.0);
INSERT INTO groups VALUES ('g00000', 't', 0, 'committed', '', 0, '["g00000-m0"]', 10.0);
INSERT INTO steps VALUES
    (0, '{"clock_seconds": 10.0, "waited_seconds": {"tests": 4.0}, "gradient_seconds": 2.0}'),
    (1, '{"clock_seconds": 20.0, "waited_seconds": {"tests": 11.0}, "gradient_seconds": 2.0}');
"""


def test_what_a_policy_or_a_data_set_made_up_can_not_speak_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = simulated(tmp_path, WORLD)
    connection = sqlite3.connect(folder.ledger)
    connection.execute("UPDATE turns SET tools = 'act' || char(27) || '[2J'")
    connection.execute("UPDATE rollouts SET task_id = 't' || char(27) || ']0;owned' || char(7)")
    connection.commit()
    connection.close()
    assert why(tmp_path) == 0
    out = capsys.readouterr().out
    assert "act?[2J" in out
    assert not {"\x1b", "\x07"} & set(out)


def test_another_kind_of_run_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--folder", str(tmp_path), "why", "nothing"]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_tools_are_told_apart_by_image_where_the_run_knows_them(tmp_path: Path) -> None:
    folder = simulated(tmp_path, WORLD)
    connection = sqlite3.connect(folder.ledger)
    tasks = [row[0] for row in connection.execute("SELECT DISTINCT task_id FROM rollouts")]
    images = {task: f"image-{index % 2}" for index, task in enumerate(tasks)}
    connection.execute("INSERT INTO meta VALUES ('images', ?)", (json.dumps(images),))
    connection.commit()
    connection.close()
    facts = read_facts(folder)
    assert {image for _, image in facts.latencies.tools} == {"image-0", "image-1"}
    assert set(facts.latencies.images) == {"image-0", "image-1"}
    words: list[Any] = lines_of(facts, [])
    assert any("tool act on image-" in line for line in words)
