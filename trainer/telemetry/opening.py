"""Telemetry of one run: what `[telemetry]` names is opened, fed, and closed again with the run.

    layers --spans-----> SpanWriter (RUN/trace), OTLP
    layers --metrics---> one reader ---> MetricsFile (RUN/trace), Prometheus, OTLP
    steps  --numbers---> TensorBoard, Weights & Biases, MLflow

Nothing of it runs on the event loop but `follow`, which looks at the run once a second. Closing has
a limit, past which what is left is let go of.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from . import gauges
from .config import TelemetryConfig, check_installed
from .gauges import Gauges

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader, MetricsData
    from opentelemetry.sdk.trace import SpanProcessor

    from .collecting import Taking
    from .providers import Providers
    from .scalars import Scalars

LOOK = 1.0
"""Seconds between two looks at the run."""
COLLECT = 10.0
"""Seconds between two lines of `metrics.jsonl`, and between two pushes by OTLP."""
ANSWER_LIMIT = 5.0
"""Seconds that an OTLP collector may take to answer."""
CLOSE_LIMIT = 5.0
"""Seconds that each of spans, metrics and Prometheus may take to close."""

Tell = Callable[[str], None]


class Telemetry:
    """What is open for one run."""

    def __init__(self, scalars: Scalars | None, prometheus: tuple[str, int] | None) -> None:
        self._scalars = scalars
        self.prometheus = prometheus
        """Host and port that answer Prometheus, if any."""

    def step(self, step: int, found: Mapping[str, object]) -> None:
        """Step number `step`, from 0, was applied; `found` is its row in the ledger."""
        if self._scalars is not None:
            self._scalars.step(step + 1, found)

    async def follow(self, look: Callable[[], Gauges | None]) -> None:
        """Look at the run once a second, until cancelled."""
        while True:
            now = look()
            if now is not None:
                gauges.show(now)
            await anyio.sleep(LOOK)


@contextmanager
def open_telemetry(
    config: TelemetryConfig, run: Path, settings: Mapping[str, Any], tell: Tell
) -> Iterator[Telemetry]:
    """Everything that `config` names, for the run in the folder `run`.

    `settings` is the run's whole configuration, for trackers; `tell` hears of what goes wrong
    later, each thing once, from any thread. ConfigError for what can't be opened.
    """
    check_installed(config)
    from .providers import providers

    sdk = providers({"service.instance.id": run.name, "patchgym.run": run.name})
    with ExitStack() as stack:
        stack.enter_context(_warnings_told(tell))
        scalars = _open_scalars(config, run, settings, tell, stack)
        stack.callback(gauges.clear)
        _open_spans(config, run, sdk, tell, stack)
        address = _open_metrics(config, run, sdk, tell, stack)
        yield Telemetry(scalars, address)


def _open_scalars(
    config: TelemetryConfig, run: Path, settings: Mapping[str, Any], tell: Tell, stack: ExitStack
) -> Scalars | None:
    from .scalars import Scalars
    from .trackers import open_trackers

    trackers = open_trackers(config, run, settings)
    if not trackers:
        return None
    scalars = Scalars(trackers, tell)
    stack.callback(scalars.close)
    return scalars


def _open_spans(
    config: TelemetryConfig, run: Path, sdk: Providers, tell: Tell, stack: ExitStack
) -> None:
    if config.trace:
        from .span_writer import SpanFiles, SpanWriter

        files = SpanFiles(run / "trace", config.trace_mib << 20)
        _listen(sdk, SpanWriter(files, tell), stack)
    if config.otlp:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = OTLPSpanExporter(f"{config.otlp.rstrip('/')}/v1/traces", timeout=ANSWER_LIMIT)
        _listen(sdk, BatchSpanProcessor(exporter, max_queue_size=16_384), stack)


def _listen(sdk: Providers, listener: SpanProcessor, stack: ExitStack) -> None:
    sdk.listeners.add(listener)
    stack.callback(_within, CLOSE_LIMIT, listener.shutdown)
    stack.callback(sdk.listeners.remove, listener)


def _open_metrics(
    config: TelemetryConfig, run: Path, sdk: Providers, tell: Tell, stack: ExitStack
) -> tuple[str, int] | None:
    """What reads metrics; where Prometheus is answered, if it is."""
    from .collecting import Collector
    from .metrics_file import MetricsFile

    takers: list[Callable[[MetricsData], object]] = [MetricsFile(run / "trace", tell).append]
    if config.otlp:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter(f"{config.otlp.rstrip('/')}/v1/metrics", timeout=ANSWER_LIMIT)
        stack.callback(_within, CLOSE_LIMIT, exporter.shutdown)
        takers.append(exporter.export)
    reader, address = _open_reader(config, sdk, stack)
    collector = Collector(reader, takers, COLLECT)
    collector.open()
    stack.callback(_within, CLOSE_LIMIT, collector.close)
    return address


def _open_reader(
    config: TelemetryConfig, sdk: Providers, stack: ExitStack
) -> tuple[Taking, tuple[str, int] | None]:
    """The one reader of metrics, and where Prometheus is answered from it."""
    if not config.prometheus:
        from .collecting import FileReader

        alone = FileReader()
        _read_by(alone, sdk, stack)
        return alone, None
    from .prometheus import SharedReader, serve

    shared = SharedReader()
    _read_by(shared, sdk, stack)
    address, stop = serve(config, shared.registry)
    stack.callback(_within, CLOSE_LIMIT, stop)
    return shared, address


def _read_by(reader: MetricReader, sdk: Providers, stack: ExitStack) -> None:
    sdk.meters.add_metric_reader(reader)
    stack.callback(sdk.meters.remove_metric_reader, reader)


def _within(seconds: float, close: Callable[[], object]) -> None:
    """Call `close`, and wait for it no longer than that."""
    thread = threading.Thread(target=close, name="patchgym-telemetry-close", daemon=True)
    thread.start()
    thread.join(seconds)


class _Told(logging.Handler):
    """What the SDK complains of, once a kind."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the first line of the first complaint of each logger."""
        if record.name not in self._seen:
            self._seen.add(record.name)
            words = (record.getMessage().splitlines() or [""])[0][:300]
            self._tell(f"telemetry: {words}")


@contextmanager
def _warnings_told(tell: Tell) -> Iterator[None]:
    """The SDK logs what fails, such as a collector that does not answer; people hear it here."""
    logger, handler = logging.getLogger("opentelemetry"), _Told(tell)
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
