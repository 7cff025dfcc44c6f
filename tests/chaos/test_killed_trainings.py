"""A training is killed again and again, at any moment; at the end nothing is lost or done twice.

`make chaos` kills 200 times (PATCHGYM_CHAOS_KILLS); the ordinary tests take a short run of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from chaos_runs import NAME, ChaosRun, wait

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("PATCHGYM_CHAOS_KILLS", "5"))
SEED = int(os.environ.get("PATCHGYM_CHAOS_SEED", "7"))
long = pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it")
MOMENTS = ("opening", "anywhere", "checkpoint", "ledger", "anywhere")


def to_the_moment(
    run: ChaosRun, process: subprocess.Popen[bytes], moment: str, chance: random.Random
) -> None:
    """Return when the process is where it is to be killed."""
    if moment == "opening":
        run.until(process, lambda: "loading the model" in run.log.read_text())
        wait(chance.uniform(0.0, 4.0))
        return
    run.go_on(process, chance.randint(1, 8))
    if moment == "checkpoint":
        run.until(process, run.writing_checkpoint)
    elif moment == "ledger":
        written = run.ledger_written()
        run.until(process, lambda: run.ledger_written() != written)
    else:
        wait(chance.uniform(0.0, 1.0))


def test_nothing_is_lost_or_trained_twice_however_often_it_is_killed(
    run: ChaosRun, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)
    back: list[float] = []
    shot_while_writing = 0
    with run.training() as process:
        to_the_moment(run, process, "anywhere", chance)
    for kill in range(1, KILLS):
        moment = MOMENTS[kill % len(MOMENTS)]
        before = max(run.checkpoints(), default=0)
        started = time.monotonic()
        with run.training() as process:
            if moment != "opening":
                run.until(process, lambda: run.steps_made() > 0)
                back.append(time.monotonic() - started)
            to_the_moment(run, process, moment, chance)
            process.send_signal(signal.SIGKILL)
            process.wait()
        shot_while_writing += run.writing_checkpoint()
        run.check()
        assert max(run.checkpoints(), default=0) >= before
    last = run.summary()["steps"] + 3
    run.finish(last)
    report = run.check()
    assert report["state"] == "finished" and report["broken"] == 0
    counts = {each["name"]: each["checked"] for each in report["invariants"]}
    assert counts["steps"] == last and counts["trained once"] >= last
    result = {
        "kills": KILLS,
        "broken": report["broken"],
        "kills_while_a_checkpoint_was_written": shot_while_writing,
        "steps": last,
        "restart_to_first_step_seconds_max": round(max(back, default=0.0), 1),
    }
    with capsys.disabled():
        sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")


@long
def test_a_killed_run_is_shown_as_gone_and_one_that_sleeps_as_silent(run: ChaosRun) -> None:
    with run.training() as process:
        run.until(process, lambda: run.steps_made() > 0)
        assert f"{NAME}  running" in run.command("runs", "ls").stdout
        process.send_signal(signal.SIGSTOP)
        old = time.time() - 60
        os.utime(run.run / "heartbeat.json", (old, old))
        asleep = run.command("runs", "ls").stdout
        assert f"{NAME}  silent since" in asleep and f"process {process.pid}" in asleep
        process.send_signal(signal.SIGCONT)
        run.go_on(process, 2)
        assert f"{NAME}  running" in run.command("runs", "ls").stdout
        process.kill()
        process.wait()
        assert f"{NAME}  gone since" in run.command("runs", "ls").stdout
    run.check()


@long
def test_the_newest_checkpoint_and_the_ledgers_tail_are_damaged_and_nothing_gets_worse(
    run: ChaosRun,
) -> None:
    with run.training("--checkpoint.keep", "2", "--checkpoint.best", "false") as process:
        # Two whole ones, with the sizes of their files, which are noted last.
        run.until(process, lambda: len(list((run.run / "checkpoints").glob("*/files.json"))) == 2)
    newest = run.run / "checkpoints" / str(max(run.checkpoints()))
    victim = max(
        (path for path in (newest / "state").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    victim.write_bytes(victim.read_bytes()[:-7])
    found = run.command("runs", "check", NAME)
    assert found.returncode == 1 and victim.name in found.stdout
    with run.training() as process:
        assert process.wait(120) == 2
    assert f"step {min(run.checkpoints())}" in run.log.read_text(), run.log.read_text()
    newest.rename(run.folder / "damaged")
    run.finish(max(run.checkpoints()) + 2)
    run.check()

    ledger = run.run / "run.sqlite"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: len(whole) // 2])
    with run.training() as process:
        assert process.wait(120) == 2
    assert "damaged" in run.log.read_text(), run.log.read_text()
    assert ledger.read_bytes() == whole[: len(whole) // 2]
    assert run.command("runs", "check", NAME).returncode == 2
    ledger.write_bytes(whole)
    run.check()


@long
def test_two_trainings_of_one_run_can_not_be(run: ChaosRun) -> None:
    with run.training() as process:
        run.until(process, lambda: run.steps_made() > 0)
        second = run.command("train", "--resume", NAME)
        assert second.returncode == 2 and "another process is running it" in second.stderr
        run.go_on(process)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 96 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", path], check=True)
    return path


def fill(ballast: Path) -> None:
    """Write until there is no room left."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * (1 << 16))


@long
def test_a_full_disk_ends_the_run_typed_and_with_room_it_goes_on(
    run: ChaosRun, small_disk: Path
) -> None:
    (run.folder / "runs").symlink_to(small_disk)
    ballast = small_disk / "ballast"
    ballast.touch()
    try:
        with run.training() as process:
            run.until(process, lambda: bool(run.checkpoints()))
            fill(ballast)
            assert process.wait(120) == 2, run.log.read_text()
        said = run.log.read_text()
        assert "free space" in said or "make room" in said, said
        ballast.unlink()
        run.check()
        run.finish(max(run.checkpoints()) + 2)
        run.check()
    finally:
        subprocess.run(["umount", "-l", small_disk], check=True)
