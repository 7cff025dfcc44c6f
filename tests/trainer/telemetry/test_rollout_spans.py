"""What rollouts that go wrong tell: what failed, where it did, and no made-up series."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from patchgym.agent import (
    Action,
    Completion,
    PolicyLoad,
    RolloutLimits,
    SampleRequest,
    ToolCall,
    Trajectory,
    rollout,
)
from patchgym.trainer.simulation import (
    Latency,
    SimulatedAgent,
    SimulatedEnvironment,
    SimulatedPolicy,
    World,
)
from patchgym.trainer.telemetry.providers import providers

BARE = """
import sys
sys.modules["opentelemetry.sdk"] = None
import anyio
from opentelemetry import trace
from patchgym import rewards, sandbox
from patchgym.agent import RolloutLimits, rollout
from patchgym.trainer import training
from patchgym.trainer.simulation import *

async def main():
    world = World(turns=1)
    done = await rollout(
        task_id="t", rollout_id="r", seed=0, agent=SimulatedAgent(), policy=SimulatedPolicy(world),
        environment=SimulatedEnvironment(world, (0, 0), lambda stage, *, sandbox="": None),
        limits=RolloutLimits(),
    )
    print(done.stop_reason, trace.get_current_span().is_recording())

anyio.run(main)
"""
"""Everything, with OpenTelemetry's API alone."""

QUICK = Latency(spec="const:0")
ALWAYS = 1.0


class Inventive(SimulatedAgent):
    """Calls a tool that nobody offers."""

    def act(self, completion: Completion) -> Action:
        return Action(text="", calls=(ToolCall(name="rm_everything"),))


class Broken:
    """A policy that fails."""

    version = 0

    async def sample(self, request: SampleRequest) -> Completion:
        raise ConnectionResetError("the server went away")

    def load(self) -> PolicyLoad:
        return PolicyLoad()


class Heard:
    """What was told within a block."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.data: MetricsData | None = None

    def span(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found

    def error_type(self, name: str) -> object:
        return (self.span(name).attributes or {}).get("error.type")

    def labels(self, metric: str) -> list[dict[str, object]]:
        assert self.data is not None
        return [
            dict(point.attributes or {})
            for resource in self.data.resource_metrics
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]


@contextmanager
def listening() -> Iterator[Heard]:
    heard, sdk = Heard(), providers({})
    listener = SimpleSpanProcessor(heard.exporter)
    meters: MeterProvider = sdk.meters
    sdk.listeners.add(listener)
    meters.add_metric_reader(heard.reader)
    try:
        yield heard
    finally:
        sdk.listeners.remove(listener)
        heard.data = heard.reader.get_metrics_data()
        meters.remove_metric_reader(heard.reader)


async def act(world: World, **more: object) -> Trajectory:
    parts = {
        "agent": SimulatedAgent(),
        "environment": SimulatedEnvironment(world, (0, 0), lambda stage, *, sandbox="": None),
        "policy": SimulatedPolicy(world),
        "limits": RolloutLimits(max_turns=4, tool_seconds=0.2),
        **more,
    }
    return await rollout(task_id="t", rollout_id="r", seed=0, **parts)  # type: ignore[arg-type]


def quick(**more: float) -> World:
    return World(turns=1, generation=QUICK, reset=QUICK, step=QUICK, **more)  # type: ignore[arg-type]


def test_no_layer_needs_an_sdk() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "solved False\n"


@pytest.mark.parametrize(
    ("world", "stop_reason", "kind"),
    [
        (quick(dying=ALWAYS), "sandbox_failed", "SandboxError"),
        (quick(failing_steps=ALWAYS), "environment_failed", "RuntimeError"),
        (quick(hanging=ALWAYS), "environment_failed", "environment_failed"),
    ],
)
async def test_a_tool_call_that_fails_says_by_what(
    world: World, stop_reason: str, kind: str
) -> None:
    with listening() as heard:
        trajectory = await act(world)
    assert trajectory.stop_reason == stop_reason
    assert heard.error_type("execute_tool act") == kind
    assert heard.error_type("rollout") == stop_reason
    assert heard.span("rollout").status.description == trajectory.error
    failing = {"gen_ai.tool.name": "act", "error.type": kind}
    assert failing in heard.labels("patchgym.tool.duration")
    assert {"patchgym.stop_reason": stop_reason} in heard.labels("patchgym.rollout.duration")


async def test_a_policy_that_fails_says_by_what() -> None:
    with listening() as heard:
        trajectory = await act(quick(), policy=Broken())
    assert trajectory.stop_reason == "policy_failed"
    assert heard.error_type("text_completion") == "ConnectionResetError"


async def test_a_turn_past_its_limit_says_so() -> None:
    world = World(generation=Latency(spec="const:30"), reset=QUICK)
    with listening() as heard:
        await act(world, limits=RolloutLimits(turn_seconds=0.05))
    assert heard.error_type("text_completion") == "deadline"


async def test_a_tool_that_a_model_makes_up_makes_no_series() -> None:
    with listening() as heard:
        await act(quick(), agent=Inventive())
    attributes = heard.span("execute_tool _other").attributes or {}
    assert attributes["gen_ai.tool.name"] == "rm_everything"
    names = [labels["gen_ai.tool.name"] for labels in heard.labels("patchgym.tool.duration")]
    assert "rm_everything" not in names
    assert "_other" in names


async def test_a_rollout_is_part_of_what_its_caller_does() -> None:
    with listening() as heard:
        with trace.get_tracer("caller").start_as_current_span("mine") as mine:
            await act(quick())
            assert trace.get_current_span() is mine
    parent = heard.span("rollout").parent
    assert parent is not None
    assert parent.span_id == mine.get_span_context().span_id


async def test_a_cancelled_rollout_ends_its_spans() -> None:
    with listening() as heard:
        with anyio.move_on_after(0.05):
            await act(World(generation=Latency(spec="const:30"), reset=QUICK))
    names = [span.name for span in heard.exporter.get_finished_spans()]
    assert names == ["open", "text_completion", "turn", "rollout"]
