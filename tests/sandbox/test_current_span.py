"""A block's span: current within it, ended after it, whatever leaves the block."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from patchgym.sandbox.current_span import CurrentSpan, TimedSpan

WITHOUT_SDK = """
from opentelemetry import trace
from patchgym.sandbox.current_span import CurrentSpan
before = trace.get_current_span()
with CurrentSpan(trace.get_tracer("patchgym.test").start_span("a")) as told:
    print(trace.get_current_span() is before, told.span.is_recording())
"""


@pytest.fixture
def ended() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(ended: InMemorySpanExporter) -> Iterator[Tracer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ended))
    yield provider.get_tracer("test")
    provider.shutdown()


def test_spans_nest_and_the_one_before_is_current_again(
    tracer: Tracer, ended: InMemorySpanExporter
) -> None:
    before = trace.get_current_span()
    with CurrentSpan(tracer.start_span("outer")) as outer:
        assert trace.get_current_span() is outer.span
        with CurrentSpan(tracer.start_span("inner")) as inner:
            assert trace.get_current_span() is inner.span
        assert trace.get_current_span() is outer.span
    assert trace.get_current_span() is before
    first, second = ended.get_finished_spans()
    assert (first.name, second.name) == ("inner", "outer")
    assert first.parent == outer.span.get_span_context()
    assert second.status.status_code is StatusCode.UNSET


def test_an_error_is_on_the_span_and_goes_on(tracer: Tracer, ended: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), CurrentSpan(tracer.start_span("fails")):
        raise ValueError("no")
    [span] = ended.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "ValueError: no",
    )
    assert [event.name for event in span.events] == ["exception"]


def test_a_cancellation_is_no_error(tracer: Tracer, ended: InMemorySpanExporter) -> None:
    with pytest.raises(asyncio.CancelledError), CurrentSpan(tracer.start_span("cancelled")):
        raise asyncio.CancelledError
    [span] = ended.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
    assert not span.events


def test_a_timed_block_counts_its_seconds_and_failures_by_type(
    tracer: Tracer, ended: InMemorySpanExporter
) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    seconds = meters.get_meter("test").create_histogram("test.seconds", "s")
    with TimedSpan(tracer.start_span("fine"), seconds, {"kind": "a"}):
        pass
    with pytest.raises(KeyError), TimedSpan(tracer.start_span("fails"), seconds, {"kind": "a"}):
        raise KeyError("x")
    data = reader.get_metrics_data()
    assert data is not None
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [dict(point.attributes or {}) for point in points] == [
        {"kind": "a"},
        {"kind": "a", "error.type": "KeyError"},
    ]
    fails = ended.get_finished_spans()[1]
    assert dict(fails.attributes or {}) == {"error.type": "KeyError"}
    meters.shutdown()


def test_without_an_sdk_nothing_changes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False\n"
