"""Collects metrics every few seconds, and once more at the end, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData

_log = logging.getLogger("opentelemetry.patchgym")
"""Heard as the SDK's own complaints are: see `opening`."""


class Collector(MetricReader):
    """Hands what was collected to all `takers` in turn, every so many seconds.

    There is one for all of them: each reader more makes every measurement dearer.
    """

    def __init__(self, takers: Sequence[Callable[[MetricsData], object]], every: float) -> None:
        super().__init__()
        self._takers, self._every = tuple(takers), every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="patchgym-metrics", daemon=True)

    def open(self, meters: MeterProvider) -> None:
        """Begin to collect."""
        meters.add_metric_reader(self)
        self._thread.start()

    def close(self, meters: MeterProvider) -> None:
        """Collect once more, and no more."""
        self._stop.set()
        self._thread.join()
        meters.remove_metric_reader(self)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Nothing is left to do: see `close`."""

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        for take in self._takers:
            take(metrics_data)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            self.collect()
        except Exception as error:  # the next time may go well; the run goes on in any case
            _log.warning("metrics can't be collected: %s: %s", type(error).__name__, error)
