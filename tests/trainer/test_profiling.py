"""Captures: who may ask for one, what is in it, and that never two go on."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jax
import jax.numpy as jnp
import pytest

from patchgym.trainer.config import load_config
from patchgym.trainer.errors import ConfigError, RunError, UserError
from patchgym.trainer.profile_config import ProfileConfig
from patchgym.trainer.profiling import (
    Observation,
    ProfileService,
    ask_for_capture,
    stage,
    step,
)
from patchgym.trainer.profiling.capture import (
    CaptureError,
    Cause,
    begin_capture,
    captures,
    finish_capture,
)
from patchgym.trainer.profiling.mailbox import Mailbox, Owner
from patchgym.trainer.profiling.waits import WaitWatch
from patchgym.trainer.run_folder import RunFolder, locked

SEEN = Observation(step=7, policy_version=6, waiting="")
SHORT = ProfileConfig(seconds=1)
AMPLE = 1 << 30


@jax.jit
def product(x: jax.Array) -> jax.Array:
    """Some work."""
    return (x @ x).sum()


@contextmanager
def busy() -> Iterator[None]:
    """A learner's thread: steps with stages in them, one after the other."""
    over = threading.Event()

    def work() -> None:
        number, square = 0, jnp.ones((64, 64))
        while not over.is_set():
            with step(number), stage("gradient"):
                product(square).block_until_ready()
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def events(folder: Path) -> list[dict[str, Any]]:
    """What a capture shows, from the trace that it names."""
    record = json.loads((folder / "capture.json").read_text())
    with gzip.open(folder / record["trace"]) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def bytes_in(folder: Path) -> int:
    """Bytes of all files but the record."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files if path.name != "capture.json")


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


async def until(true: Callable[[], bool]) -> None:
    """Return once `true` is."""

    def look() -> None:
        while not true():
            threading.Event().wait(0.01)

    await anyio.to_thread.run_sync(look, abandon_on_cancel=True)


class Told:
    """Lines of a service; `wait` returns with the next one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._event = anyio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._event.set()

    async def wait(self) -> str:
        await self._event.wait()
        self._event = anyio.Event()
        return self.lines[-1]


@asynccontextmanager
async def listening(
    profile: Path, config: ProfileConfig = SHORT, seen: Observation | None = SEEN
) -> AsyncIterator[Told]:
    """A service in this process."""
    told = Told()
    service = ProfileService(profile, config, observe=lambda: seen, tell=told)
    async with anyio.create_task_group() as group:
        group.start_soon(service.run)
        await until(lambda: bool(names(profile, "owner.json")))
        yield told
        group.cancel_scope.cancel()


async def ask(folder: RunFolder, seconds: float = 1) -> dict[str, Any]:
    return await anyio.to_thread.run_sync(ask_for_capture, folder, seconds)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A run that this process runs."""
    folder = RunFolder(tmp_path)
    with locked(folder):
        yield folder


@pytest.mark.anyio
async def test_a_capture_that_was_asked_for_has_the_steps_and_their_stages(run: RunFolder) -> None:
    with busy():
        async with listening(run.profile) as told:
            record = await ask(run)
    assert (record["why"], record["step"], record["policy_version"]) == ("asked", 7, 6)
    assert not record["cut_short"] and record["seconds"] >= 1
    folder = Path(record["path"])
    assert folder.parent == run.profile and folder.name.startswith("7-")
    assert record["path"] in told.lines[0]
    assert record["bytes"] == bytes_in(folder)
    shown = events(folder)
    steps = [event for event in shown if event.get("name") == "train"]
    numbers = [int(event["args"]["step_num"]) for event in steps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 1
    inside = [event for event in shown if event.get("name") == "gradient"]
    assert {event["tid"] for event in inside} == {event["tid"] for event in steps}
    assert record["versions"]["jax"] == jax.__version__
    assert names(run.profile, "*") == [folder.name, "requests"]
    assert names(run.profile / "requests", "*") == []


@pytest.mark.anyio
async def test_a_signal_makes_a_capture_and_none_beside_it(run: RunFolder) -> None:
    async with listening(run.profile) as told:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        first = await told.wait()
        while not captures(run.profile):
            await told.wait()
    (record,) = captures(run.profile)
    assert record["why"] == "signal"
    # Two signals may arrive as one.
    assert len(told.lines) == 1 or "no capture is made: a capture of 1 s (signal)" in first


@pytest.mark.anyio
async def test_a_long_wait_makes_a_capture_once_and_says_what_for(run: RunFolder) -> None:
    waiting = replace(SEEN, waiting="g00003-m1 in tests since 40 s")
    config = ProfileConfig(seconds=1, on_wait=0.01, automatic=1)
    async with listening(run.profile, config, waiting) as told:
        await told.wait()
        await ask(run)  # the service looked again, and found the same wait
    assert [record["why"] for record in captures(run.profile)] == ["wait", "asked"]
    assert captures(run.profile)[0]["waited"] == "g00003-m1 in tests since 40 s"
    async with listening(run.profile, config, waiting):
        await ask(run)  # a run that goes on has had its automatic captures
    assert [record["why"] for record in captures(run.profile)] == ["wait", "asked", "asked"]


def test_each_wait_is_told_once_when_it_passes_the_limit() -> None:
    now = [0.0]
    watch = WaitWatch(10, lambda: now[0])
    waiting = replace(SEEN, waiting="tests")

    def at(second: float, seen: Observation | None) -> float | None:
        now[0] = second
        return watch.passed(seen)

    assert at(0, None) is None
    assert at(1, waiting) is None
    assert at(10.9, waiting) is None
    assert at(11, waiting) == 10
    assert at(30, waiting) is None
    assert at(31, SEEN) is None
    assert at(32, waiting) is None
    assert at(43, waiting) == 11
    # The step between two looks was not seen, but counted.
    assert at(44, replace(waiting, step=8)) is None
    assert at(54, replace(waiting, step=8)) == 10
    never = WaitWatch(0, lambda: now[0])
    assert at(100, waiting) is None and never.passed(waiting) is None


@pytest.mark.anyio
async def test_a_second_capture_is_refused_while_one_goes_on(run: RunFolder) -> None:
    async with listening(run.profile) as told:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, run)
            await until(lambda: bool(names(run.profile / "requests", "*.taken")))
            with pytest.raises(RunError, match=r"a capture of 1 s \(asked\) is going on already"):
                await ask(run)
        assert len(told.lines) == 1


@pytest.mark.anyio
async def test_a_run_that_ends_finishes_its_capture_and_marks_it(run: RunFolder) -> None:
    found: list[dict[str, Any]] = []

    async def keep() -> None:
        found.append(await ask(run, 120))

    async with anyio.create_task_group() as group:
        async with listening(run.profile):
            group.start_soon(keep)
            await until(lambda: bool(names(run.profile, ".partial-*")))
    assert found[0]["cut_short"] and found[0]["seconds"] < 120
    assert captures(run.profile)[0]["cut_short"]
    assert not (run.profile / "owner.json").exists()


@pytest.mark.anyio
async def test_another_trace_of_the_process_is_left_alone(run: RunFolder, tmp_path: Path) -> None:
    jax.profiler.start_trace(tmp_path / "own")
    try:
        async with listening(run.profile):
            with pytest.raises(RunError, match="already been started"):
                await ask(run)
    finally:
        jax.profiler.stop_trace()
    assert captures(run.profile) == [] and names(run.profile, ".partial-*") == []


@pytest.mark.parametrize("seconds", [0, 0.5, 121, float("nan"), -3])
def test_seconds_out_of_range_are_refused_on_both_sides(run: RunFolder, seconds: float) -> None:
    with pytest.raises(UserError, match="give 1 to 120"):
        ask_for_capture(run, seconds)
    assert not run.profile.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("text", ['{"seconds": 1e9}', "{", "[]", '{"seconds": "x"}'])
async def test_a_request_that_makes_no_sense_is_refused_by_the_run(
    run: RunFolder, text: str
) -> None:
    async with listening(run.profile):
        requests = run.profile / "requests"
        (requests / "odd.json").write_text(text)
        mailbox = Mailbox(run.profile)
        await until(lambda: bool(names(requests, "*.answer")))
        answer = mailbox.collect("odd")
    assert answer and answer.state == "refused" and "give 1 to 120" in answer.words


def test_a_run_that_does_not_run_is_said_so(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "gone")
    folder.profile.mkdir(parents=True)
    with pytest.raises(RunError, match="not running.*patchgym train --resume gone"):
        ask_for_capture(folder, 1)
    (folder.path / "lock").touch()
    owner = folder.profile / "owner.json"
    owner.write_text(json.dumps(asdict(Owner.here())))  # it was killed
    with pytest.raises(RunError, match="not running"):
        ask_for_capture(folder, 1)
    assert [path.name for path in folder.profile.iterdir()] == ["owner.json"]


def test_nobody_answers_and_the_request_is_taken_back(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nobody answered within 0.3 s, and the request was taken"):
        ask_for_capture(run, 1, taken_within=0.3)
    assert list((run.profile / "requests").iterdir()) == []
    elsewhere = RunFolder(tmp_path / "elsewhere")
    elsewhere.profile.mkdir(parents=True)
    owner = Owner(host="node-17", boot="another", pid=4242)
    (elsewhere.profile / "owner.json").write_text(json.dumps(asdict(owner)))
    with pytest.raises(RunError, match="process 4242 of node-17"):
        ask_for_capture(elsewhere, 1, taken_within=0.3)
    assert list((elsewhere.profile / "requests").iterdir()) == []


def test_exactly_one_of_taking_and_withdrawing_happens(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    mailbox.open()
    first, second = mailbox.post(1), mailbox.post(2)
    assert mailbox.withdraw(first) and not mailbox.withdraw(first)
    assert mailbox.take() == {second: 2.0}
    assert not mailbox.withdraw(second) and mailbox.take() == {}
    mailbox.open()
    assert list((tmp_path / "requests").iterdir()) == [], "what an earlier process left"


def test_a_capture_past_the_disk_limit_leaves_nothing(tmp_path: Path) -> None:
    begun = begin_capture(tmp_path, Cause(why="asked"))
    with pytest.raises(CaptureError, match=r"more than profile.disk_mib \(9\).*fewer seconds"):
        finish_capture(begun, cut_short=False, limit=9)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_captures_make_room(tmp_path: Path) -> None:
    for day, size in ((1, 100), (2, AMPLE // 2), (3, 100)):
        folder = tmp_path / f"{day}-then"
        folder.mkdir()
        record = {"folder": folder.name, "began": f"2020-01-0{day}", "bytes": size}
        (folder / "capture.json").write_text(json.dumps(record))
    begun = begin_capture(tmp_path, Cause(why="asked", step=9))
    record = finish_capture(begun, cut_short=False, limit=AMPLE // 2)
    left = [known["folder"] for known in captures(tmp_path)]
    assert left == ["3-then", record["folder"]]


@pytest.mark.anyio
async def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".partial-3-then" / "plugins").mkdir(parents=True)
    async with listening(tmp_path):
        assert names(tmp_path, ".partial-*") == []


def test_annotations_import_nothing() -> None:
    code = (
        "import sys; from patchgym.trainer.profiling import stage, step\n"
        "with step(1), stage('x'): assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seconds", "0"),
        ("seconds", "121"),
        ("on_wait", "-1"),
        ("automatic", "-1"),
        ("disk_mib", "0"),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"profile: {key} is"):
        load_config(None, [(f"profile.{key}", value)])
