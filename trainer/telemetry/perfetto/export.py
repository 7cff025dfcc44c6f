"""From a run's span files and metrics to one Perfetto trace."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from patchgym.trainer.errors import UserError
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.telemetry.metrics_file import read_metrics
from patchgym.trainer.telemetry.span_file import SpanRecord, newest_end, read_spans

from .counters import collected, under_way
from .groups import GROUPS, LANE_NAMES, ROLLOUTS, grouped
from .lanes import lay_out
from .writing import TraceWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfettoExport:
    """What was written."""

    out: Path
    spans: int
    """Slices; sampled turns are shown twice."""
    points: int
    """Of counters."""
    seconds: float
    """From the first span's start to the last one's end."""
    damaged: int
    """Lines that could not be read."""


def export_perfetto(run: RunFolder, out: Path, last: float | None = None) -> PerfettoExport:
    """Write the spans of the last `last` seconds of `run` (None: all that is kept) to `out`.

    UserError when there are none, or the package is missing, or `out` can't be written.
    """
    if importlib.util.find_spec("perfetto") is None:
        raise UserError("--format perfetto needs perfetto: pip install 'patchgym[observe]'")
    damaged: list[str] = []
    spans = read_window(run.path / "trace", last, damaged.append)
    if not spans:
        raise UserError(
            f"{run.path}: it has no spans: it ended at once, or ran with telemetry.trace = false, "
            "or with an older version"
        )
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            writer = TraceWriter(file)
            _write(writer, run, spans)
        os.replace(part, out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"{out}: can't be written: {error}; name another --out") from None
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    return PerfettoExport(
        out=out,
        spans=writer.slices,
        points=writer.points,
        seconds=end - start,
        damaged=len(damaged),
    )


def read_window(
    folder: Path, last: float | None, on_damaged: Callable[[str], None]
) -> list[SpanRecord]:
    """Spans of the last seconds before the newest one's end."""
    newest = newest_end(folder)
    since = None if last is None or newest is None else newest - last
    return list(read_spans(folder, since=since, on_damaged=on_damaged))


def _write(writer: TraceWriter, run: RunFolder, spans: list[SpanRecord]) -> None:
    since = min(span.start for span in spans)
    counters = writer.group("Counters", 0)
    curves = under_way(spans) | collected(read_metrics(run.path / "trace"), since)
    for name in sorted(curves):
        writer.counter(name, counters, curves[name])
    groups = grouped(spans)
    for rank, group in enumerate(GROUPS, 1):
        if group in groups:
            uuid = writer.group(group, rank)
            for lane in lay_out(groups[group], _slot if group == ROLLOUTS else _nowhere):
                writer.lane(f"{LANE_NAMES[group]} {lane.number}", uuid, lane)


def _slot(span: SpanRecord) -> int | None:
    """The slot that a rollout was in."""
    slot = span.attributes.get("patchgym.slot")
    return slot if isinstance(slot, int) else None


def _nowhere(span: SpanRecord) -> int | None:
    return None
