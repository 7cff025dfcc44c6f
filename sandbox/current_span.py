"""Spans around a block of code, for every layer, as cheap as OpenTelemetry's API allows.

`Tracer.start_as_current_span` does the same through generators within generators. These are plain
objects; where no SDK is set up, they do next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import StatusCode, set_span_in_context

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span


class CurrentSpan:
    """Makes `span` the current one within a `with` block, and ends it there.

    An exception that leaves the block is recorded on the span; a cancellation is none.
    """

    __slots__ = ("_token", "span")

    def __init__(self, span: Span) -> None:
        """`span` has begun already."""
        self.span = span
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        span = self.span
        # Without an SDK there is no span to be a child of: the current one stays what it is.
        if span.is_recording() or span.get_span_context().is_valid:
            self._token = attach(set_span_in_context(span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._token is not None:
            detach(self._token)
        span = self.span
        if isinstance(error, Exception) and span.is_recording():
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.end()


class TimedSpan(CurrentSpan):
    """The same, with the block's seconds in a histogram: failures by type."""

    __slots__ = ("_duration", "_labels", "_started")

    def __init__(self, span: Span, duration: Histogram, labels: Mapping[str, str]) -> None:
        """`labels` are those of the histogram's point."""
        super().__init__(span)
        self._duration, self._labels = duration, labels
        self._started = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        labels = self._labels
        if isinstance(error, Exception):
            failure = self.failure(error)
            labels = {**labels, "error.type": failure}
            self.span.set_attribute("error.type", failure)
        self._duration.record(time.perf_counter() - self._started, labels)
        super().__exit__(kind, error, where)

    def failure(self, error: Exception) -> str:
        """What `error.type` says of it."""
        return type(error).__qualname__
