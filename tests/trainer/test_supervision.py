"""How a run ended is one line; what does not come back ends it by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from patchgym.trainer.admission import Admission
from patchgym.trainer.errors import RunError, RunStopped
from patchgym.trainer.supervision import STAGES, End, Stuck, end_of, one_line, watch


def caught(raising: Callable[[], None]) -> Exception:
    """The error that a callable raises, with its traceback."""
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def fail() -> None:
    raise ValueError("a fault\nof ours")


def stop() -> None:
    raise RunStopped("too many failed")


def test_every_stage_is_a_function_that_there_is() -> None:
    for module, function in STAGES:
        if "<locals>" in function:
            function = function.partition(".<locals>")[0]
        found: object = importlib.import_module(module)
        for name in function.split("."):
            found = getattr(found, name)
        assert callable(found), (module, function)


async def test_an_error_is_of_the_innermost_stage_on_its_way() -> None:
    from patchgym.trainer.sources import ListSource

    class Broken(ListSource):
        async def next(self) -> None:
            raise RunError("the list is gone")

    from patchgym.trainer.pipeline import Pipeline, PipelineParts

    parts = PipelineParts(
        policy=None, agents=None, domain=None, board=None, admission=Admission(1),  # type: ignore[arg-type]
    )  # fmt: skip
    pipeline = Pipeline(parts, limits=None, scoring=None)  # type: ignore[arg-type]
    error: BaseException | None = None
    send, receive = anyio.create_memory_object_stream[Any](1)
    try:
        async with receive, anyio.create_task_group() as group:
            source = Broken("list", [], samples=1, seed=0)
            group.start_soon(pipeline._slot, 0, source, send, None)  # type: ignore[arg-type]
    except BaseException as raised:
        error = raised
    end = end_of(error, step=3)
    assert (end.how, end.stage, end.kind, end.more) == ("failed", "rollouts", "RunError", 0)
    assert end.line() == "failed after step 3: rollouts: RunError: the list is gone"


def test_a_group_of_groups_is_the_fault_of_ours_in_it_and_a_count() -> None:
    inner = ExceptionGroup("inner", [caught(fail), caught(stop)])
    end = end_of(ExceptionGroup("outer", [caught(stop), inner]), step=7, stage="training")
    assert (end.kind, end.words, end.more, end.stage) == (
        "ValueError",
        "a fault of ours",
        2,
        "training",
    )
    assert end.line() == "failed after step 7: training: ValueError: a fault of ours (and 2 more)"


def test_without_an_error_a_run_finished_and_with_a_signal_it_was_stopped() -> None:
    assert end_of(None, step=2).line() == "finished"
    end = end_of(None, step=2, stopped="64 in sampling", stage="training")
    assert end.line() == "stopped after step 2: training: signal: 64 in sampling"
    assert End(**{"how": "finished"}).line() == "finished"  # type: ignore[arg-type]


def test_a_long_error_is_cut_and_an_empty_one_is_its_type() -> None:
    assert one_line(ValueError("word " * 300), most=20) == "word word word wo..."
    assert one_line(KeyError()) == "KeyError"


async def test_what_does_not_move_is_named_with_stacks_and_raised() -> None:
    told: list[tuple[str, str]] = []
    with anyio.fail_after(20), pytest.raises(Stuck, match="for 0 s: the disk of step 3"):
        await watch(
            lambda: 1, lambda: "the disk of step 3", 0.2, lambda: "stacks",
            lambda words, stacks: told.append((words, stacks)),
        )  # fmt: skip
    assert told == [("nothing has come back for 0 s: the disk of step 3", "stacks")]


def numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


@pytest.mark.parametrize("moves", [numbers().__next__, lambda: None], ids=["moving", "waiting"])
async def test_what_moves_or_waits_with_a_limit_of_its_own_is_never_stuck(
    moves: Callable[[], object],
) -> None:
    with anyio.move_on_after(1.0) as scope:
        await watch(moves, lambda: "", 0.2, lambda: "", lambda words, stacks: None)
    assert scope.cancelled_caught
