"""Collects metrics every few seconds, and once more at the end, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from opentelemetry.sdk.metrics.export import MetricReader, MetricsData

_log = logging.getLogger("opentelemetry.patchgym")
"""Heard as the SDK's own complaints are: see `opening`."""


class Taking(Protocol):
    """A MetricReader that hands over what it collects."""

    def take(self) -> MetricsData | None:
        """All metrics as they are now; None when there are none."""
        ...


class FileReader(MetricReader):
    """The reader of a run that nobody scrapes; for one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._found: MetricsData | None = None

    def take(self) -> MetricsData | None:
        """See Taking."""
        self._found = None
        self.collect()
        return self._found

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Nothing is left to do."""

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        self._found = metrics_data


class Collector:
    """Hands what `reader` finds to all `takers` in turn, every so many seconds.

    There is one reader for all of them, and for Prometheus: each more makes every measurement
    dearer by as much as the first.
    """

    def __init__(
        self, reader: Taking, takers: Sequence[Callable[[MetricsData], object]], every: float
    ) -> None:
        self._reader, self._takers, self._every = reader, tuple(takers), every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="patchgym-metrics", daemon=True)

    def open(self) -> None:
        """Begin to collect; the reader must be the provider's by then."""
        self._thread.start()

    def close(self) -> None:
        """Collect once more, and no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            found = self._reader.take()
            if found is not None:
                for take in self._takers:
                    take(found)
        except Exception as error:  # the next time may go well; the run goes on in any case
            _log.warning("metrics can't be collected: %s: %s", type(error).__name__, error)
