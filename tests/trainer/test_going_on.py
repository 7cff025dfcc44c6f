"""Going on from an older checkpoint, and with other settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchgym.trainer.checkpoint_files import write_value
from patchgym.trainer.checkpoint_ranking import Value
from patchgym.trainer.cli import main
from patchgym.trainer.config import RunConfig, load_config
from patchgym.trainer.errors import ConfigError, RunError
from patchgym.trainer.going_on import GoingOn, go_back, prepare
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.resumable import ACCEPTED, check_accepted, judged
from patchgym.trainer.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with checkpoints of steps 3, 6 and 9, the second of which is the best."""
    for step, reward in ((3, 0.2), (6, 0.9), (9, 0.4)):
        path = tmp_path / "checkpoints" / str(step)
        path.mkdir(parents=True)
        write_value(path, Value(measure="reward", value=reward))
    return RunFolder(tmp_path)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_newer_checkpoints_are_set_aside_and_none_is_lost(folder: RunFolder) -> None:
    assert go_back(folder, "9") == (9, [])
    assert go_back(folder, "best") == (6, [9])
    assert names(folder.checkpoints) == ["3", "6"]
    (folder.checkpoints / "9").mkdir()  # the run went on, and is to go back once more
    assert go_back(folder, "3") == (3, [9, 6])
    assert names(folder.checkpoints) == ["3"]
    assert names(folder.path / "set-aside") == ["step-6", "step-9", "step-9-2"]


@pytest.mark.parametrize(
    ("which", "complaint"),
    [
        ("7", r"--from 7: there is no such checkpoint in .*; steps there: 3, 6, 9"),
        ("-3", "--from -3: there is no such checkpoint"),
        ("worst", "--from worst: there is no such checkpoint"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_named(
    folder: RunFolder, which: str, complaint: str
) -> None:
    with pytest.raises(RunError, match=complaint):
        go_back(folder, which)
    assert names(folder.checkpoints) == ["3", "6", "9"]


def test_a_damaged_one_and_one_without_measures_change_nothing(folder: RunFolder) -> None:
    (folder.checkpoints / "6" / "files.json").write_text(json.dumps({"weights": 5}))
    with pytest.raises(RunError, match="6: damaged: weights is missing; choose another"):
        go_back(folder, "best")
    for step in (3, 6, 9):
        (folder.checkpoints / str(step) / "value.json").unlink()
    with pytest.raises(RunError, match="--from best: none was measured"):
        go_back(folder, "best")
    assert names(folder.checkpoints) == ["3", "6", "9"]


@pytest.mark.anyio
async def test_what_was_asked_is_on_record(folder: RunFolder) -> None:
    old, new = RunConfig(), load_config(None, [("run.steps", "20")])
    async with Ledger(folder.ledger) as ledger:
        ledger.group("g00000", "calc/add", 0, "pending")
        ledger.quarantine("calc/add", "it never works")
        await ledger.flush()
        with pytest.raises(RunError, match="--readmit calc/mul"):
            prepare(GoingOn(origin="3", readmit="calc/mul"), folder, ledger)
        assert names(folder.checkpoints) == ["3", "6", "9"]  # all or nothing
        asked = GoingOn(origin="6", readmit="all", changes=judged(old, new))
        lines = prepare(asked, folder, ledger)
    assert "from the checkpoint of step 6" in lines[0] and "step 9" in lines[0]
    assert lines[1] == "calc/add is taken in again"
    with LedgerReader(folder.ledger) as reader:
        events = {
            row["kind"]: json.loads(row["detail"]) for row in reader.rows("SELECT * FROM events")
        }
        assert reader.left_out() == {}
    assert events["went_back"] == {"step": 6, "asked": "6", "set_aside": [9]}
    assert events["changed"] == {"settings": [["run.steps", "14", "20"]]}
    assert events["readmitted"] == {"task": "calc/add"}


@pytest.mark.anyio
async def test_measures_of_later_weights_go_with_them(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        for name, version in (("before", 0), ("step-5", 5), ("step-10", 11), ("after", 14)):
            ledger.record(
                "INSERT INTO evaluations VALUES (?,?,?,?,?,?)", (name, version, "t", 0, 1, name)
            )
            ledger.meta(f"evaluation.{name}", {"pass_rate": 1.0})
        for step in range(14):
            ledger.step(step, {})
        ledger.restore(14)
        await ledger.flush()
        with LedgerReader(path) as reader:
            assert len(reader.rows("SELECT * FROM evaluations")) == 4
        ledger.restore(6)
    with LedgerReader(path) as reader:
        left = [row["name"] for row in reader.rows("SELECT name FROM evaluations ORDER BY name")]
        keys = [row["key"] for row in reader.rows("SELECT key FROM meta ORDER BY key")]
        assert len(reader.steps()) == 6
    assert left == ["before", "step-5"]
    assert keys == ["evaluation.before", "evaluation.step-5", "synced"]


@pytest.mark.parametrize("words", [("--from", "3"), ("--readmit", "all")])
def test_going_back_and_taking_in_again_need_a_run(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert f"{words[0]} is of a run that goes on: name it with --resume" in capsys.readouterr().err


def settings(config: RunConfig) -> Iterator[str]:
    """Dotted names of every setting."""
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if dataclasses.is_dataclass(value) and section.name != "reward":
            yield from (f"{section.name}.{each.name}" for each in dataclasses.fields(value))


def test_every_accepted_setting_is_one_that_there_is() -> None:
    known = set(settings(RunConfig()))
    for name in ACCEPTED:
        found = {key for key in known if key == name or key.startswith(name)}
        assert found, name


def test_changes_are_judged_by_name_and_all_that_are_refused_are_told() -> None:
    words = [
        ("run.steps", "20"), ("run.seed", "3"), ("learner.learning_rate", "1e-4"),
        ("scoring.workers", "4"), ("rollout.in_flight", "8"), ("rollout.max_turns", "3"),
        ("learner.mesh.fsdp", "2"), ("tasks.quarantine", "0"), ("tasks.revisit", "0.5"),
    ]  # fmt: skip
    changes = judged(RunConfig(), load_config(None, words))
    assert {change.key: change.accepted for change in changes} == {
        "learner.learning_rate": False,
        "learner.mesh.fsdp": True,
        "rollout.in_flight": True,
        "rollout.max_turns": False,
        "run.seed": False,
        "run.steps": True,
        "scoring.workers": True,
        "tasks.quarantine": True,
        "tasks.revisit": False,
    }
    lines = [change.line() for change in changes]
    assert "run.steps: 14 -> 20  accepted: how far it goes" in lines
    assert "run.seed: 0 -> 3  refused: every random stream follows from it" in lines
    with pytest.raises(ConfigError) as caught:
        check_accepted(changes)
    for change in changes:
        refused = f"{change.key} can't change from {change.old!r} to {change.new!r}"
        assert (refused in str(caught.value)) is not change.accepted
    check_accepted([change for change in changes if change.accepted])
