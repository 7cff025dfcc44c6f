"""OpenTelemetry's SDK in this process: set up once, listened to while a run is open.

The API takes one provider for the life of a process. Ours is made when it is first asked for, and
what listens to it comes and goes with runs. Without a listener no span is recorded. Where the
process has an SDK of somebody else's already, runs listen to that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes

import patchgym

LONGEST = 1000
"""Characters of an attribute's value."""


class Listeners(SpanProcessor):
    """Hands ended spans to whoever listens now."""

    def __init__(self) -> None:
        self._all: tuple[SpanProcessor, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: SpanProcessor) -> None:
        """From now on."""
        self._all = (*self._all, listener)

    def remove(self, listener: SpanProcessor) -> None:
        """No longer; the caller shuts it down."""
        self._all = tuple(each for each in self._all if each is not listener)

    def on_end(self, span: ReadableSpan) -> None:
        """To all."""
        for listener in self._all:
            listener.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """All write or send what they have; whether all could."""
        done = [listener.force_flush(timeout_millis) for listener in self._all]
        return all(done)


class WhenHeard(Sampler):
    """Records every span while anybody listens, and none else."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See Sampler."""
        decision = Decision.RECORD_AND_SAMPLE if self._listeners else Decision.DROP
        state = get_current_span(parent_context).get_span_context().trace_state
        return SamplingResult(decision, attributes, state)

    def get_description(self) -> str:
        """See Sampler."""
        return "WhenHeard"


class Providers:
    """This process's SDK."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        resource = Resource.create(
            {"service.name": "patchgym", "service.version": patchgym.__version__, **attributes}
        )
        self.listeners = Listeners()
        spans, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
        if not isinstance(spans, TracerProvider):
            spans = TracerProvider(
                sampler=WhenHeard(self.listeners),
                resource=resource,
                span_limits=SpanLimits(max_span_attribute_length=LONGEST),
                shutdown_on_exit=False,
            )
            trace.set_tracer_provider(spans)
        spans.add_span_processor(self.listeners)
        if not isinstance(meters, MeterProvider):
            # An exemplar would name a span that made a measurement; nothing here reads them.
            meters = MeterProvider(
                resource=resource,
                shutdown_on_exit=False,
                exemplar_filter=AlwaysOffExemplarFilter(),
            )
            metrics.set_meter_provider(meters)
        self.meters = meters


_lock = Lock()
_providers: Providers | None = None


def providers(attributes: Mapping[str, str]) -> Providers:
    """This process's; `attributes` say what it is, and are those of the first caller."""
    global _providers
    with _lock:
        if _providers is None:
            _providers = Providers(attributes)
        return _providers
