"""The `[telemetry]` section: where spans, metrics and each step's numbers go."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from urllib.parse import urlsplit

from patchgym.trainer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Spans and metrics: see docs/telemetry.md. Metrics are always kept in `RUN/trace/`."""

    trace: bool = True
    """Keep spans in `RUN/trace/`."""
    trace_mib: int = 256
    """MiB of spans that are kept; past it the oldest are removed."""
    prometheus: str = ""
    """`HOST:PORT` to answer Prometheus at, such as `127.0.0.1:9464`; it asks nobody for a
    password. Empty: don't."""
    otlp: str = ""
    """Where an OpenTelemetry collector takes OTLP over HTTP, such as `http://127.0.0.1:4318`;
    empty: nowhere."""
    tensorboard: bool = False
    """Write each step's numbers to `RUN/tensorboard/`."""
    wandb: str = ""
    """The Weights & Biases project that each step's numbers go to; empty: none. WANDB_MODE=offline
    keeps them in `RUN/wandb/`."""
    mlflow: str = ""
    """MLflow's tracking server as `http://HOST:PORT`, or a folder for its files, that each step's
    numbers go to; empty: none."""

    def __post_init__(self) -> None:
        if self.trace_mib < 1:
            raise ValueError(f"trace_mib is {self.trace_mib!r}: it must be at least 1")
        if self.prometheus:
            self.prometheus_address()
        if self.otlp and urlsplit(self.otlp).scheme not in ("http", "https"):
            raise ValueError(f"otlp is {self.otlp!r}: it must be http://HOST:PORT")

    def prometheus_address(self) -> tuple[str, int]:
        """Host and port. Raises ValueError."""
        host, colon, port = self.prometheus.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                f"prometheus is {self.prometheus!r}: it must be HOST:PORT, such as 127.0.0.1:9464"
            )
        return host.strip("[]"), int(port)


_NEEDS = {
    "prometheus": ("opentelemetry.exporter.prometheus", "observe"),
    "otlp": ("opentelemetry.exporter.otlp.proto.http", "observe"),
    "tensorboard": ("tensorboardX", "observe"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
}
"""What an option imports, and the extra that has it."""


def check_installed(config: TelemetryConfig) -> None:
    """ConfigError for the first option whose packages are not installed."""
    wanted = [("trace", "opentelemetry.sdk", "train")]
    wanted += [(name, *_NEEDS[name]) for name in _NEEDS if getattr(config, name)]
    for name, module, extra in wanted:
        if not _is_there(module):
            raise ConfigError(
                f"telemetry.{name} needs {module}, which is not installed here: "
                f"pip install 'patchgym[{extra}]', or leave the option out"
            )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
