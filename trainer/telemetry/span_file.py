"""The spans that a run keeps in `RUN/trace/`: what a line holds, and how to read them back.

    trace/spans-000001.jsonl   the oldest that is left
    trace/spans-000002.jsonl   ... the greatest number is being written

A line is one ended span, in the order in which spans ended, so that the newest are read first from
the end of the newest file and a window costs no more than what it holds. Reading disturbs nobody: a
file may grow, be rotated away, or end in half a line meanwhile.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["unset", "ok", "error"]
Value = str | bool | int | float | list[str] | list[bool] | list[int] | list[float]

_NAME = re.compile(r"spans-(\d{6,})\.jsonl")
_BLOCK = 1 << 16
"""Bytes read at once, from the end of a file towards its start."""

_SLACK = 10.0
"""Seconds by which lines may be out of order: spans that end in different threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """One ended span."""

    name: str
    """What was done, such as `rollout` or `execute_tool run_tests`: see docs/telemetry.md."""
    start: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch."""
    trace_id: str
    """32 hexadecimal digits: one rollout with its scoring, or one step, is one trace."""
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str = ""
    """The span that this one is a part of; empty for the first of a trace."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    """By name: `patchgym.*`, or one of OpenTelemetry's conventions."""
    status: Status = "unset"
    """`error` for what failed; `attributes["error.type"]` says by what."""
    scope: str = ""
    """The layer that speaks: `patchgym.agent` and so on."""
    words: str = ""
    """Of an error: what happened."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


def span_files(folder: Path) -> list[Path]:
    """The span files in `folder` (a run's `trace/`), the oldest first; none if it isn't there."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((folder / n for n in names if _NAME.fullmatch(n)), key=span_file_number)


def span_file_number(path: Path) -> int:
    """The number in a span file's name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path}: not a span file")
    return int(match[1])


def read_spans(
    folder: Path,
    *,
    since: float | None = None,
    until: float | None = None,
    on_damaged: Callable[[str], None] = lambda words: None,
) -> Iterator[SpanRecord]:
    """Spans in `folder` that overlap the window, the last to end first. Blocks: not for an event
    loop.

    `since` and `until` are seconds since the epoch. Lines that can't be read are left out, and
    `on_damaged` is told of each in words; half a line at the very end is one being written.
    """
    for path in reversed(span_files(folder)):
        for span in _read_file(path, on_damaged):
            if since is not None and span.end < since:
                if span.end < since - _SLACK:
                    return
                continue
            if until is None or span.start <= until:
                yield span


def newest_end(folder: Path) -> float | None:
    """When the last span on file ended, seconds since the epoch; None without spans."""
    return max(
        (span.end for span, _ in zip(read_spans(folder), range(64), strict=False)), default=None
    )


def parse_span(line: bytes | str) -> SpanRecord:
    """One line; ValueError says what is wrong with it."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"not a span: {line[:80]!r}")
    try:
        return _from_mapping(record)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a span: {type(error).__name__}: {error}") from None


def _from_mapping(record: dict[str, Any]) -> SpanRecord:
    return SpanRecord(
        name=record["name"],
        start=record["start"] / 1e9,
        end=record["end"] / 1e9,
        trace_id=record["trace"],
        span_id=record["span"],
        parent_id=record.get("parent", ""),
        attributes=record.get("attributes", {}),
        status=record.get("status", "unset"),
        scope=record.get("scope", ""),
        words=record.get("words", ""),
    )


def _read_file(path: Path, on_damaged: Callable[[str], None]) -> Iterator[SpanRecord]:
    """A file's spans, the last first."""
    for line in _lines_backwards(path):
        try:
            yield parse_span(line)
        except ValueError as error:
            on_damaged(f"{path.name}: {error}")


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """Whole lines from the last to the first; one without its newline is left out."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # rotated away meanwhile
        return
    with file:
        position = file.seek(0, os.SEEK_END)
        tail = b""
        unfinished = True
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            lines = (file.read(size) + tail).split(b"\n")
            tail = lines[0]
            whole = lines[:0:-1]
            if whole and unfinished:
                whole, unfinished = whole[1:], False
            yield from (line for line in whole if line)
        if tail and not unfinished:
            yield tail
