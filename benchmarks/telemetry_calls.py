"""The calls that the layers make to OpenTelemetry for a rollout, and nothing else of it.

A block of them is what `bench_telemetry.py` measures: `turn` is what the agent's layer tells of a
turn and of its half of a rollout; `quickstart` is a whole rollout of the quickstart, with its
sandboxes, commands and scoring.
"""

from __future__ import annotations

from collections.abc import Callable

from patchgym.agent import (
    Completion,
    Observation,
    SampleRequest,
    ToolSpec,
    Trajectory,
    Turn,
    rollout_span,
)
from patchgym.agent import telemetry as agent
from patchgym.rewards import Reward, Score, Verdict
from patchgym.rewards import telemetry as rewards
from patchgym.sandbox import CommandResult
from patchgym.sandbox import telemetry as sandbox
from patchgym.sandbox.result import Output

TURNS = 2
"""Of a rollout."""

_NOTHING = Output(head=b"")
_RESULT = CommandResult(exit_code=1, cpu_seconds=0.2, stdout=_NOTHING, stderr=_NOTHING)
_TOOL = ToolSpec(name="replace_function", description="", parameters={})
_REQUEST = SampleRequest(rollout_id="g00001-m3", tokens=(1,) * 200, max_new_tokens=48, seed=7)
_COMPLETION = Completion(tokens=(1,) * 40, logprobs=(-1.0,) * 40, policy_version=3, finish="stop")
_SEEN = Observation(kind="output", text="", done=False, tool=_TOOL.name)
_TRAJECTORY = Trajectory(
    rollout_id=_REQUEST.rollout_id,
    task_id="repair/clamp",
    seed=1,
    turns=(Turn(context=(1,), completion=_COMPLETION, text="", calls=()),) * TURNS,
    stop_reason="solved",
)
_SCORE = Score(name="tests", value=1.0, weight=1.0)
_REWARD = Reward(total=1.0, scores=(_SCORE,), verdict=Verdict(status="resolved", evidence="report"))
_IMAGE, _NAME = "patchgym/base:bookworm-py311", "patchgym-0123456789ab-7"


def turn() -> int:
    """A turn of the agent's layer; the turns that it was."""
    for _ in range(TURNS):
        _turn(lambda: None)
    rollout_span("repair/clamp", "g00001-m3", slot=3, group="g00001").end()
    return TURNS


def quickstart() -> int:
    """A rollout with its scoring, from beginning to end; the turns that it was."""
    span = rollout_span("repair/clamp", "g00001-m3", slot=3, group="g00001")
    with agent.acting(span, "repair/clamp", "g00001-m3") as told:
        with agent.part("open"):
            pass
        for _ in range(TURNS):
            _turn(_tests)
        with agent.part("outcome"):
            pass
        told.ended(_TRAJECTORY)
    with rewards.scoring(span, "g00001-m3", 0.1) as scored:
        with rewards.component("tests") as component:
            _tests()
            component.ended(_SCORE)
        scored.ended(_REWARD)
    return TURNS


KINDS = {"turn": turn, "quickstart": quickstart}
"""By name."""


def _turn(tool: Callable[[], None]) -> None:
    with agent.turn(0, replayed=False):
        with agent.sampling(_REQUEST, "SmolLM2-135M-Instruct") as sampled:
            sampled.ended(_COMPLETION)
        with agent.tool_call(_TOOL.name, (_TOOL,)) as called:
            tool()
            called.ended(_SEEN)


def _tests() -> None:
    """Tests are run in a sandbox that is leased for it, and another is made in its place."""
    with sandbox.lease_wait(_IMAGE, "g00001-m3"):
        pass
    with sandbox.lease_held(_NAME, _IMAGE, "g00001-m3"):
        with sandbox.checkout(_NAME, "0123456789abcdef"):
            _command()
        with sandbox.test_run(4, 0):
            _command()
        sandbox.tests_ended(("passed", "passed", "failed", "passed"))
    with sandbox.prepare(7, _IMAGE):
        _command()


def _command() -> None:
    with sandbox.command(_NAME, _IMAGE) as told:
        told.ended(_RESULT)
