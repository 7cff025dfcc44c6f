"""Keeps metrics in `RUN/trace/metrics.jsonl`: a line for each time that they were collected.

    {"time": SECONDS, "metrics": [{"name", "unit", "points": [{"attributes", "value"}]}]}

A histogram's point has `count`, `sum`, `min`, `max`, `bounds` and `counts` instead of a value. At
half its bound the file becomes `metrics.1.jsonl`, and the one before that goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
)

MOST = 64 << 20
"""Bytes of both files together."""
FILE, OLD_FILE = "metrics.jsonl", "metrics.1.jsonl"


class MetricsFile:
    """The metrics' file of one run."""

    def __init__(self, folder: Path, tell: Callable[[str], None], most: int = MOST) -> None:
        self._folder, self._tell, self._most = folder, tell, most
        self._told = False

    def append(self, data: MetricsData) -> None:
        """Append a line; a failure is told once, and nothing else comes of it."""
        try:
            self._append(metrics_line(data))
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(f"metrics can't be written ({error.strerror or error})")

    def _append(self, line: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        path = self._folder / FILE
        with path.open("ab") as file:
            size = file.tell()
            if size and size + len(line) > self._most // 2:
                path.replace(self._folder / OLD_FILE)
            else:
                file.write(line)
                return
        with path.open("ab") as file:
            file.write(line)


def metrics_line(data: MetricsData) -> bytes:
    """The line of one collection; see the module."""
    found = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    times = [point.time_unix_nano for metric in found for point in metric.data.data_points]
    record = {"time": max(times, default=0) / 1e9, "metrics": [_metric(each) for each in found]}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _metric(metric: Metric) -> dict[str, object]:
    points = [_point(point) for point in metric.data.data_points]
    return {"name": metric.name, "unit": metric.unit or "", "points": points}


def _point(point: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    if point.attributes:
        found["attributes"] = dict(point.attributes)
    if isinstance(point, NumberDataPoint):
        found["value"] = point.value
    elif isinstance(point, HistogramDataPoint):
        found |= {"count": point.count, "sum": point.sum, "min": point.min, "max": point.max}
        found |= {"bounds": list(point.explicit_bounds), "counts": list(point.bucket_counts)}
    return found


def read_metrics(folder: Path) -> Iterator[dict[str, Any]]:
    """The collections in `folder` (a run's `trace/`), the oldest first; broken lines are left
    out. Blocks."""
    for name in (OLD_FILE, FILE):
        try:
            file = (folder / name).open("rb")
        except FileNotFoundError:
            continue
        with file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record
