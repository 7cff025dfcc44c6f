"""Components that behave in every wrong way, in threads and in processes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import ClassVar

import anyio
import pytest

from patchgym.datasets.task import bundled_tasks
from patchgym.rewards import (
    Change,
    Component,
    Conduct,
    Fault,
    Measurement,
    Part,
    Scene,
    Score,
    UnknownValue,
    Verdict,
)
from patchgym.rewards.component import Need
from patchgym.rewards.measuring import Measurer
from patchgym.rewards.registry import make_component

pytestmark = pytest.mark.anyio
SCENE = Scene(
    task=bundled_tasks("train")[0],
    diff=b"x",
    change=Change(tree="1" * 40),
    gold=Change(tree="2" * 40),
    verdict=Verdict(status="resolved", evidence="report"),
    conduct=Conduct(turns=3),
)
LIBRARY = """
import os, signal, subprocess, sys, time
from dataclasses import dataclass
from pathlib import Path
from patchgym.rewards import Component, Measurement

@dataclass(frozen=True, kw_only=True)
class Mine(Component):
    how: str = "well"
    mark: str = ""

    def measure(self, scene):
        if self.mark:
            with open(self.mark, "a") as file:
                file.write(f"{os.getpid()}\\n")
        if self.how == "sleeps":
            time.sleep(600)
        if self.how == "spins":
            while True:
                pass
        if self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "dies once" and len(Path(self.mark).read_text().split()) == 1:
            os._exit(3)
        if self.how == "exits":
            sys.exit("enough")
        if self.how == "prints":
            print("RETURN 3", flush=True)
            os.write(1, b"RETURN 3\\n")
            subprocess.run(["sh", "-c", "cat; echo out"], check=True)
        if self.how == "raises":
            raise type("Odd", (Exception,), {})("no such luck")
        if self.how == "nan":
            return Measurement(value=float("nan"))
        return Measurement(value=0.5, evidence={"conduct": scene.conduct is not None})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Component):
    """Returns what it is given; raises it if it is an exception."""

    answer: object
    needs: ClassVar[frozenset[Need]] = frozenset({"conduct"})

    def measure(self, scene: Scene) -> Measurement:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Component):
    """Returns when it is let."""

    let: Event

    def measure(self, scene: Scene) -> Measurement:
        self.let.wait()
        return Measurement(value=1.0)


def light(component: Component, deadline: float = 60.0) -> Part:
    return Part(name="mine", component=component, source="x:X", weight=0.5, deadline=deadline)


async def ask(answer: object) -> Score:
    return await Measurer().measure(light(Answer(answer=answer)), SCENE)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(LIBRARY)
    return path


def heavy(library: Path, how: str, deadline: float = 60.0, mark: str = "") -> Part:
    source, options = f"{library}:Mine", {"how": how, "mark": mark}
    return Part(
        name="mine",
        component=make_component(source, options),
        source=source,
        options=options,
        weight=1.0,
        deadline=deadline,
    )


async def test_a_measurement_becomes_a_score() -> None:
    faults = (Fault(message="here", path="a.py", line=3),)
    found = Measurement(value=1, evidence={"a": (1, 2)}, faults=faults, tools="ruff 1.2")
    score = await ask(found)
    assert replace(score, seconds=0) == Score(
        name="mine",
        value=1.0,
        weight=0.5,
        evidence={"a": [1, 2]},
        faults=faults,
        version="1 ruff 1.2",
    )
    assert score.contribution == 0.5


LOOP: list[object] = []
LOOP.append(LOOP)
WRONG: dict[str, object] = {
    "no gold": UnknownValue("no gold"),
    "it raised KeyError: 'x'": KeyError("x"),
    "it raised SystemExit: 3": SystemExit(3),
    "it raised ValueError: two lines": ValueError("two\nlines"),
    "it returned a NoneType, not a Measurement": None,
    "its value is a str, not a number": Measurement(value="1"),  # type: ignore[arg-type]
    "its value is a bool, not a number": Measurement(value=True),
    "its value is nan, which is not in 0 to 1": Measurement(value=float("nan")),
    "its value is 2, which is not in 0 to 1": Measurement(value=2.0),
    "its value is -0.1, which is not in 0 to 1": Measurement(value=-0.1),
    "its evidence is no JSON: TypeError": Measurement(value=1.0, evidence={"a": {1}}),
    "its evidence is no JSON: ValueError: Out of": Measurement(
        value=1.0, evidence={"a": float("inf")}
    ),
    "its evidence is no JSON: ValueError: Circ": Measurement(value=1.0, evidence={"a": LOOP}),
    "its evidence is no JSON: ValueError: it is over 1 MiB": Measurement(
        value=1.0, evidence={"a": "x" * (1 << 21)}
    ),
    "its faults are no Faults": Measurement(value=1.0, faults=("x",)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("reason", WRONG)
async def test_nonsense_is_unknown_and_is_named(reason: str) -> None:
    score = await ask(WRONG[reason])
    assert (score.status, score.value, score.contribution) == ("unknown", None, 0.0)
    assert reason in score.detail and "\n" not in score.detail


async def test_a_component_sees_only_what_it_asks_for() -> None:
    seen: list[Scene] = []

    @dataclass(frozen=True, kw_only=True)
    class Looks(Component):
        needs: ClassVar[frozenset[Need]] = frozenset({"conduct"})

        def measure(self, scene: Scene) -> Measurement:
            seen.append(scene)
            return Measurement(value=1.0)

    await Measurer().measure(light(Looks()), SCENE)
    assert seen == [replace(SCENE, verdict=None)]


async def test_past_its_deadline_a_thread_is_left_behind_and_the_next_is_a_process(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let = Event()
    monkeypatch.syspath_prepend(library.parent)
    slow = replace(light(Waits(let=let), 0.05), source="mine:Mine")
    measurer = Measurer()
    first = await measurer.measure(slow, SCENE)
    let.set()
    assert (first.status, first.detail) == ("unknown", "not measured within 0.05 s")
    second = await measurer.measure(replace(slow, deadline=60.0), SCENE)
    assert second.value == 0.5  # which is what mine.py says, in another process


async def test_a_thread_that_hangs_keeps_no_process_from_ending(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import anyio, time\n"
        "from patchgym.rewards.measuring import _in_daemon\n"
        "async def main():\n"
        "    with anyio.move_on_after(0.1):\n"
        "        await _in_daemon(lambda: time.sleep(600))\n"
        "if __name__ == '__main__':\n"
        "    anyio.run(main)\n"
    )
    with anyio.fail_after(60):
        done = await anyio.run_process([sys.executable, str(script)])
    assert done.returncode == 0


async def test_a_component_from_a_file_is_measured_in_a_process(library: Path) -> None:
    score = await Measurer().measure(heavy(library, "well"), SCENE)
    assert (score.value, score.evidence) == (0.5, {"conduct": False})


@pytest.mark.parametrize("how", ["sleeps", "spins"])
async def test_a_process_that_hangs_is_killed(library: Path, tmp_path: Path, how: str) -> None:
    mark = tmp_path / "mark"
    started = time.monotonic()
    score = await Measurer().measure(heavy(library, how, 8.0, str(mark)), SCENE)
    assert (score.status, score.detail) == ("unknown", "not measured within 8 s")
    assert time.monotonic() - started < 60
    assert not await anyio.Path(f"/proc/{mark.read_text().strip()}").exists()


async def test_a_process_that_breaks_is_tried_once_more(library: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    dead = await Measurer().measure(heavy(library, "dies", mark=str(mark)), SCENE)
    assert (dead.status, dead.detail) == ("unknown", "its process ended 2 times without an answer")
    assert len(mark.read_text().split()) == 2
    mark.unlink()
    once = await Measurer().measure(heavy(library, "dies once", mark=str(mark)), SCENE)
    assert (once.status, once.value) == ("measured", 0.5)


async def test_what_goes_wrong_in_a_process_is_named(library: Path) -> None:
    measurer = Measurer()
    details = {
        how: (await measurer.measure(heavy(library, how), SCENE)).detail
        for how in ("raises", "exits", "nan")
    }
    assert details == {
        "raises": "it raised Odd: no such luck",
        "exits": "it raised SystemExit: enough",
        "nan": "its value is nan, which is not in 0 to 1",
    }


async def test_a_component_and_its_children_may_print_and_read(library: Path) -> None:
    score = await Measurer().measure(heavy(library, "prints"), SCENE)
    assert (score.detail, score.value) == ("", 0.5)


async def test_a_file_that_is_broken_by_now_is_named(library: Path) -> None:
    part = heavy(library, "well")
    await anyio.Path(library).write_text("1 / 0\n")
    score = await Measurer().measure(part, SCENE)
    assert "ZeroDivisionError" in score.detail


async def test_no_more_processes_than_allowed(library: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    measurer = Measurer(processes=1)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(measurer.measure, heavy(library, "well", mark=str(mark)), SCENE)
    pids = mark.read_text().split()
    assert (len(pids), len(set(pids))) == (4, 1)
