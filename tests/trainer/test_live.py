"""What a run shows of itself: a picture on a terminal, lines in a log, documents for programs."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from patchgym.trainer.idle import Durations
from patchgym.trainer.live import JsonView, LiveView
from patchgym.trainer.live_picture import bar, picture
from patchgym.trainer.progress import KEPT, Progress
from patchgym.trainer.statistics import PassRate


def stages(**seconds: float) -> dict[str, Any]:
    durations = Durations()
    for stage, each in seconds.items():
        durations.add(stage, each)
    return durations.take()


def training() -> Progress:
    """A run in the middle of its training."""
    progress = Progress(title="shop", phase="training", step=3, steps=30)
    for step in range(3):
        progress.stepped(
            {
                "step": step,
                "reward": 0.25 * step,
                "pass_rate": 0.1,
                "staleness": {"0": 2, "1": 1},
                "outcomes": {"submitted": 7, "deadline": 1},
                "idle": {"stages": stages(sampling=2.0, **{"tool run_tests": 94.0})},
                "loss": 0.5,
            }
        )
    progress.queue_depth, progress.queue_capacity, progress.open_groups = 1, 8, 4
    progress.stages = {"sampling": 3, "tool run_tests": 5}
    progress.learner, progress.learner_seconds = "waiting", 41.0
    progress.waits_for = "learner waits 41 s for groups: 3 rollouts of calc in tool run_tests"
    progress.account = {
        "idle_share": 0.31,
        "idle_reasons": {"tool run_tests": 0.22, "publishing": 0.09},
        "sampler": {"idle_share": 0.5, "idle_reasons": {"the learner trains": 0.5}},
    }
    return progress


def drawn(progress: Progress) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(picture(progress.snapshot(), progress.history))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_the_picture_says_who_is_waited_for_and_how_long_things_take() -> None:
    text = drawn(training())
    assert "3/30" in text
    assert "sampling 3  tool run_tests 5" in text
    assert "tool run_tests 98" in text, "the 95th percentile, at most a tenth too high"
    assert "queue 1/8, 4 open, dropped: none" in text
    assert "2 of age 0, 1 of age 1" in text
    assert "deadline 1  submitted 7" in text
    assert "learner waits 41 s for groups: 3 rollouts of calc in tool run_tests" in text
    assert "31%" in text
    assert "22%\N{NO-BREAK SPACE}tool\N{NO-BREAK SPACE}run_tests" in text
    assert "the\N{NO-BREAK SPACE}learner\N{NO-BREAK SPACE}trains" in text


def test_a_bar_has_a_block_for_every_share() -> None:
    text = bar([("tool bash", 0.5), ("scoring", 0.25)])
    assert len(text.plain) == 30
    widths = {str(span.style): span.end - span.start for span in text.spans}
    assert widths == {"yellow": 15, "magenta": 7, "green": 8}
    assert len(bar([]).plain) == 30, "all of it work"


def test_names_that_a_policy_made_up_are_inert() -> None:
    progress = training()
    progress.stages = {"tool \x1b]0;owned\x07": 1}
    progress.account["idle_reasons"] = {"tool \x1b[31m": 0.3}
    progress.waits_for = "learner waits for \x1b[2J"
    assert not {"\x1b", "\x07"} & set(drawn(progress))


def test_a_run_that_just_began_has_a_picture_too() -> None:
    assert "starting" in drawn(Progress(title="new"))


def test_a_long_run_keeps_no_more_than_its_views_show() -> None:
    progress = training()
    for step in range(1000):
        progress.stepped({"step": step, "reward": 0.5, "pass_rate": 0.5, "grad_norm": 1.0})
    assert len(progress.history) == KEPT
    assert "grad_norm" not in progress.history[-1]


def test_without_a_terminal_there_are_lines() -> None:
    output = io.StringIO()
    progress = Progress()
    with LiveView(progress, Console(file=output, force_terminal=False, width=40)) as view:
        progress.enter("loading \x1b[2J the model, which takes a while, as it may")
        view.refresh()
    assert output.getvalue().endswith(
        " s] loading ?[2J the model, which takes a while, as it may\n"
    )
    assert output.getvalue().count("\n") == 1, "a line is a line, however long"


def test_a_program_gets_a_document_a_line_with_phases_steps_evaluations_and_snapshots() -> None:
    lines: list[str] = []
    progress = training()
    with JsonView(progress, lines.append) as view:
        progress.enter("training")
        progress.stepped({"step": 3, "reward": 0.5, "pass_rate": 0.5, "loss": 0.25})
        rate = PassRate(pass_rate=0.5, interval=(0.2, 0.8), samples=8, effective_samples=8.0)
        progress.measured("step-4", rate)
        view.refresh()
    found = [json.loads(line) for line in lines]
    kinds = [each["kind"] for each in found]
    assert kinds == ["line", "phase", "step", "heldout", "progress"]
    assert found[2]["loss"] == 0.25, "all of a step's metrics"
    assert found[3]["interval"] == [0.2, 0.8]
    assert found[4]["waits_for"].startswith("learner waits 41 s")
    assert all(each["time"] > 0 for each in found)
