"""A run that lost nothing passes; each promise broken by hand is found, and only that."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from group_builders import TASKS, book, member, take
from patchgym.sandbox import Engine, Owner
from patchgym.sandbox.reaper import KIT, KIT_NAME, current_owner
from patchgym.trainer.cli.main import main
from patchgym.trainer.config import config_to_toml, load_config
from patchgym.trainer.errors import RunError
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import Group, GroupBook
from patchgym.trainer.invariants import check_containers, check_facts
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.run_facts import read_facts
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import TrajectoryStore

STEPS = 3


async def record(path: Path) -> None:
    """A run of three steps of a group each, with one more that is ready and one under way."""
    folder = RunFolder(path)
    owner = book()
    async with Ledger(folder.ledger) as ledger:
        recorder = Recorder(ledger, TrajectoryStore(folder.trajectories), FailureBudgets())
        for number in range(STEPS + 1):
            group = await whole(owner, recorder, ledger, number)
            recorder.group(group, "ready")
            if number < STEPS:
                recorder.groups([group], "taken", step=number)
                age = number - group.oldest_version
                recorder.commit([group], number, {"staleness": {str(age): 1}}, {})
        ledger.group("g00004", TASKS[0].id, STEPS + 1, "pending")
        ledger.meta("state", "stopped")


async def whole(owner: GroupBook, recorder: Recorder, ledger: Ledger, number: int) -> Group:
    items = [take(owner, STEPS + 1), take(owner, STEPS + 1)]
    ledger.group(items[0].group_id, items[0].task.id, number, "pending")
    result: object = None
    for value, item in enumerate(items):
        each = member(item, float(value), version=max(0, number - 1))
        await recorder.rollout("train", item, each.trajectory, each.reward)
        result = owner.finish(item, each)
    assert isinstance(result, Group)
    return result


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "good"
    path.mkdir()
    settings = {"group.size": "2", "group.per_step": "1", "run.steps": str(STEPS)}
    config = load_config(None, list(settings.items()))
    RunFolder(path).config.write_text(config_to_toml(config))
    anyio.run(record, path)
    for step in (1, 2):
        inside = path / "checkpoints" / str(step)
        inside.mkdir(parents=True)
        (inside / "weights").write_bytes(b"12345")
        (inside / "files.json").write_text(json.dumps({"weights": 5}))
    return path


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "run")
    return tmp_path / "run"


def broken(path: Path) -> dict[str, str]:
    """What does not hold, by invariant."""
    findings = check_facts(read_facts(RunFolder(path)))
    return {each.name: "; ".join(each.broken) for each in findings if each.broken}


def test_a_run_that_lost_nothing_passes(run: Path) -> None:
    assert broken(run) == {}
    found = {each.name: each for each in check_facts(read_facts(RunFolder(run)))}
    assert found["trained once"].checked == STEPS
    assert found["trained once"].note == (
        "2 as of the checkpoint of step 2; 1 past it, which a resume trains again"
    )
    assert found["none lost"].note == "3 committed, 1 pending, 1 ready"
    assert found["fresh"].note == "1 at 0, 2 at 1"
    assert (found["files whole"].checked, found["checkpoints"].checked) == (8, 2)


def sql(statement: str) -> Callable[[Path], None]:
    """A change of the ledger behind its back."""

    def change(path: Path) -> None:
        with sqlite3.connect(path / "run.sqlite") as connection:
            connection.execute(statement)
        connection.close()

    return change


def cut(path: Path) -> None:
    file = TrajectoryStore(path / "trajectories").path("g00001-m0")
    file.write_bytes(file.read_bytes()[:-1])


def lose(path: Path) -> None:
    TrajectoryStore(path / "trajectories").path("g00001-m0").unlink()


def half(path: Path) -> None:
    (path / "trajectories" / "00").mkdir(exist_ok=True)
    (path / "trajectories" / "00" / "x.rollout.partial").write_bytes(b"")


def torn(path: Path) -> None:
    (path / "checkpoints" / "2" / "weights").write_bytes(b"123")


def ahead(path: Path) -> None:
    (path / "checkpoints" / "9").mkdir()


GROUP = "UPDATE groups SET {} WHERE number = {}"
BROKEN = {
    "retrained": (
        sql(GROUP.format("step = 1", 0)), "trained once+steps",
        "step 0 trained 1 groups and has 0: the others were trained at another step",
    ),
    "shared": (
        sql(GROUP.format("members = (SELECT members FROM groups WHERE number = 0)", 1)),
        "trained once", "rollout g00000-m0 is in g00000 and g00001",
    ),
    "vanished": (
        sql("DELETE FROM groups WHERE number = 3"), "none lost",
        "group number 3 was opened and is nowhere",
    ),
    "no reason": (
        sql(GROUP.format("state = 'dropped', members = '[]'", 4)), "none lost",
        "group g00004 was dropped for '', which is no reason",
    ),
    "no member": (
        sql("DELETE FROM rollouts WHERE id = 'g00003-m1'"), "none lost",
        "group g00003 is ready, and its rollout g00003-m1 is not on record",
    ),
    "no state": (
        sql(GROUP.format("state = 'lost'", 4)), "none lost", "'lost', which is no state",
    ),
    "cut": (cut, "files whole", "damaged trajectory"),
    "missing": (lose, "files whole", "no trajectory g00001-m0"),
    "stale": (
        sql("UPDATE rollouts SET policy_version = -1 WHERE group_id = 'g00002'"), "fresh",
        "group g00002 was trained at step 2 with a staleness of 3 (group.max_staleness is 1)",
    ),
    "untyped": (
        sql("UPDATE rollouts SET stop_reason = 'crashed' WHERE id = 'g00003-m0'"), "typed",
        "rollout g00003-m0 ended by 'crashed': no stop reason",
    ),
    "wordless": (
        sql("UPDATE rollouts SET stop_reason = 'sandbox_failed' WHERE id = 'g00003-m0'"), "typed",
        "rollout g00003-m0: sandbox_failed, and no word of what",
    ),
    "unrewarded": (
        sql("UPDATE rollouts SET reward = NULL WHERE id = 'g00003-m0'"), "typed",
        "and it has no reward",
    ),
    "gap": (sql("DELETE FROM steps WHERE step = 1"), "steps", "step 1 has no row"),
    "ahead": (ahead, "steps", "the checkpoint is of step 9, the ledger ends at 3"),
    "torn": (torn, "checkpoints", "weights has 3 bytes of 5"),
    "partial": (half, "nothing partial", "x.rollout.partial: left half-written"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "names", "words"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_by_hand_is_found(
    run: Path, change: Callable[[Path], None], names: str, words: str
) -> None:
    change(run)
    found = broken(run)
    assert set(found) == set(names.split("+"))
    assert words in found[names.partition("+")[0]]


def test_a_finished_run_has_all_its_steps(run: Path) -> None:
    sql("UPDATE meta SET value = '\"finished\"' WHERE key = 'state'")(run)
    text = (run / "run.toml").read_text()
    (run / "run.toml").write_text(text.replace("steps = 3", "steps = 4"))
    assert broken(run) == {"steps": "the run is finished with 3 steps of 4"}


def test_what_a_kill_leaves_half_written_is_no_fault_before_a_resume(run: Path) -> None:
    half(run)
    sql("UPDATE meta SET value = '\"running\"' WHERE key = 'state'")(run)
    assert broken(run) == {}
    notes = [each.note for each in check_facts(read_facts(RunFolder(run)))]
    assert "1 half-written, which a resume takes away" in notes


def test_a_damaged_ledger_is_named(run: Path) -> None:
    ledger = run / "run.sqlite"
    ledger.write_bytes(ledger.read_bytes()[: ledger.stat().st_size // 2])
    with pytest.raises(RunError, match="damaged"):
        read_facts(RunFolder(run))


def test_the_command_prints_each_invariant_and_says_no(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "check", str(run)]) == 0
    assert "ok  trained once: each committed group was trained once: 3 checked" in (
        capsys.readouterr().out
    )
    cut(run)
    assert main(["runs", "check", str(run), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["broken"]) == ("stopped", 1)
    (bad,) = (each for each in told["invariants"] if each["broken"])
    assert bad["name"] == "files whole" and bad["checked"] == 8
    assert main(["runs", "check", str(run)]) == 1
    assert "BROKEN  files whole" in capsys.readouterr().out


@pytest.mark.docker
async def test_a_container_of_a_process_that_is_gone_is_found(run: Path, docker_image: str) -> None:
    process = await anyio.open_process([sys.executable, "-c", ""])
    await process.wait()
    here = current_owner()
    gone = Owner(
        host=here.host, boot=here.boot, namespace=here.namespace, pid=process.pid, started="1"
    )
    async with Ledger(run / "run.sqlite") as ledger:
        ledger.event("began", owner=gone.labels(), resumed=False)
    labels = {KIT: KIT_NAME, **gone.labels()}
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    command = ["docker", "run", "-d", "--rm", *words, docker_image, "sleep", "600"]
    name = (await anyio.run_process(command)).stdout.decode().strip()
    engine = Engine()
    try:
        found = await check_containers(read_facts(RunFolder(run)), engine, 1.0)
        assert found.checked == 1 and len(found.broken) == 1
        assert "patchgym sandbox reap" in found.broken[0]
    finally:
        await anyio.run_process(["docker", "rm", "-f", name])
    assert not (await check_containers(read_facts(RunFolder(run)), engine)).broken
    engine.close()
