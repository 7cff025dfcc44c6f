"""The endpoint that Prometheus scrapes, and the reader that it shares with the run's files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import MetricsData
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from patchgym.trainer.errors import ConfigError

from .config import TelemetryConfig


class _Asked(threading.local):
    """What a thread asked for by `take`."""

    waits = False
    found: MetricsData | None = None


class SharedReader(PrometheusMetricReader):
    """Prometheus' reader, whose collections others may have as well.

    A collection comes back in the thread that asked for it: what `take` asked for goes to its
    caller, what a scrape asked for to Prometheus.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._asked = _Asked()
        super().__init__(scope_info_enabled=False, registry=self.registry)

    def take(self) -> MetricsData | None:
        """All metrics as they are now; None when there are none."""
        asked = self._asked
        asked.waits, asked.found = True, None
        try:
            self.collect()
            return asked.found
        finally:
            asked.waits, asked.found = False, None

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        if self._asked.waits:
            self._asked.found = metrics_data
        else:
            super()._receive_metrics(metrics_data, timeout_millis, **kwargs)


def serve(
    config: TelemetryConfig, registry: CollectorRegistry
) -> tuple[tuple[str, int], Callable[[], None]]:
    """Answer at the address that `config` names with what is in `registry`, and how this process
    is. The host and port that answer, and what stops it. ConfigError for a port that can't be had.
    """
    host, port = config.prometheus_address()
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"telemetry.prometheus: can't listen at {config.prometheus}: {error}; name another port"
        ) from None
    ProcessCollector(registry=registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return (host, server.server_port), stop
