"""Writes ended spans to `RUN/trace/`, off the event loop, within a bound of bytes.

    on_end (any thread) --(bounded)--> writer thread --> spans-000007.jsonl
                                                         full: the next number; too much: the oldest
                                                         files go

What can't be written is let go of: telemetry never holds up a run. `tell` hears of it once.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode

from .span_file import span_file_number, span_files

INTERVAL = 0.5
"""Seconds between two writes: how far the files are behind."""
WAITING = 50_000
"""Spans that may wait to be written."""
CLOSE_LIMIT = 5.0
"""Seconds that the last write may take."""
_WORDS = 500
"""Characters kept of what an error says."""
_STATUS = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}


class SpanFiles:
    """The files of one run; for one thread."""

    def __init__(self, folder: Path, most: int) -> None:
        """Lines go into a new file of `folder`; all files together hold at most `most` bytes."""
        self._folder, self._most = folder, most
        self._each = max(1 << 16, most // 8)
        self._file: int | None = None
        self._size = 0

    def write(self, lines: Sequence[bytes]) -> None:
        """Append whole lines, each with its newline. Raises OSError; then none of them is kept."""
        data = b"".join(lines)
        if self._file is None or self._size + len(data) > self._each:
            self._next()
        assert self._file is not None
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Nothing is written any more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _next(self) -> None:
        self.close()
        self._folder.mkdir(exist_ok=True)
        files = span_files(self._folder)
        number = span_file_number(files[-1]) + 1 if files else 1
        path = self._folder / f"spans-{number:06d}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._size = 0
        self._remove_oldest(files)

    def _remove_oldest(self, files: Sequence[Path]) -> None:
        """Make room for another whole file."""
        sizes = [path.stat().st_size for path in files]
        room = self._most - self._each
        for path, size in zip(files, sizes, strict=True):
            if sum(sizes) <= room:
                return
            path.unlink(missing_ok=True)
            sizes.remove(size)


class SpanWriter(SpanProcessor):
    """Takes ended spans from any thread; a thread of its own writes them."""

    def __init__(self, files: SpanFiles, tell: Callable[[str], None]) -> None:
        self._files, self._tell = files, tell
        self._spans: deque[ReadableSpan] = deque()
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._told: set[str] = set()
        self._overrun = False
        self.lost = 0
        """Spans that could not be kept."""
        self._thread = threading.Thread(target=self._run, name="patchgym-spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """A span ended."""
        if len(self._spans) >= WAITING:
            self.lost += 1
            self._overrun = True
        else:
            self._spans.append(span)

    def shutdown(self) -> None:
        """Write what is left; within seconds, or not at all."""
        self._stop.set()
        self._thread.join(CLOSE_LIMIT)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write what is there now, in the caller's thread."""
        self._write()
        return True

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._write()
        self._write()
        self._files.close()

    def _write(self) -> None:
        with self._writing:
            spans = [self._spans.popleft() for _ in range(len(self._spans))]
            if self._overrun:
                self._say("spans come faster than they can be written: some are not kept")
            try:
                if spans:
                    self._files.write([span_line(span) for span in spans])
            except OSError as error:
                self.lost += len(spans)
                reason = error.strerror or str(error)
                self._say(f"spans can't be written ({reason}): they are not kept until they can be")

    def _say(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._tell(words)


def span_line(span: ReadableSpan) -> bytes:
    """The line of an ended span; see `span_file`."""
    context = span.get_span_context()
    assert context is not None
    record: dict[str, object] = {
        "name": span.name,
        "start": span.start_time,
        "end": span.end_time,
        "trace": f"{context.trace_id:032x}",
        "span": f"{context.span_id:016x}",
    }
    if span.parent is not None:
        record["parent"] = f"{span.parent.span_id:016x}"
    if span.attributes:
        record["attributes"] = dict(span.attributes)
    if span.status.status_code is not StatusCode.UNSET:
        record["status"] = _STATUS[span.status.status_code]
        record["words"] = (span.status.description or "")[:_WORDS]
    if span.instrumentation_scope is not None:
        record["scope"] = span.instrumentation_scope.name
    return json.dumps(record, separators=(",", ":"), default=list).encode() + b"\n"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
