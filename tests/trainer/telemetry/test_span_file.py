"""Spans on file: what is written is read back, newest first, whatever happens to the files."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from patchgym.trainer.telemetry import read_spans, span_files
from patchgym.trainer.telemetry.span_file import newest_end
from patchgym.trainer.telemetry.span_writer import SpanFiles, SpanWriter


def line(number: int, start: float, end: float) -> str:
    record = {
        "name": f"span {number}",
        "start": int(start * 1e9),
        "end": int(end * 1e9),
        "trace": f"{number:032x}",
        "span": f"{number:016x}",
    }
    return json.dumps(record) + "\n"


def write(folder: Path, number: int, lines: list[str]) -> Path:
    path = folder / f"spans-{number:06d}.jsonl"
    path.write_text("".join(lines))
    return path


def names(folder: Path, since: float | None = None, until: float | None = None) -> list[str]:
    return [span.name for span in read_spans(folder, since=since, until=until)]


def test_spans_come_newest_first_over_all_files(tmp_path: Path) -> None:
    write(tmp_path, 9, [line(1, 0, 1), line(2, 1, 2)])
    write(tmp_path, 10, [line(3, 2, 3), line(4, 3, 4)])
    assert names(tmp_path) == ["span 4", "span 3", "span 2", "span 1"]
    assert newest_end(tmp_path) == 4


def test_files_are_in_the_order_of_their_numbers_past_six_digits(tmp_path: Path) -> None:
    for number in (1_000_000, 999_999, 2):
        write(tmp_path, number, [])
    (tmp_path / "spans-000003.jsonl.part").touch()
    numbers = [int(path.stem.partition("-")[2]) for path in span_files(tmp_path)]
    assert numbers == [2, 999_999, 1_000_000]


def test_a_window_has_what_overlaps_it(tmp_path: Path) -> None:
    spans = [line(1, 0, 50), line(2, 100, 150), line(3, 90, 300), line(4, 310, 320)]
    write(tmp_path, 1, spans)
    assert names(tmp_path, since=140, until=200) == ["span 3", "span 2"]


def test_a_window_at_the_end_reads_no_older_file(tmp_path: Path) -> None:
    write(tmp_path, 1, ["{broken\n"])
    write(tmp_path, 2, [line(1, 0, 1), line(2, 900, 1000)])
    told: list[str] = []
    found = list(read_spans(tmp_path, since=990, on_damaged=told.append))
    assert [span.name for span in found] == ["span 2"]
    assert not told


def test_half_a_line_at_the_end_is_one_being_written(tmp_path: Path) -> None:
    path = write(tmp_path, 1, [line(1, 0, 1)])
    with path.open("a") as file:
        file.write(line(2, 1, 2)[:30])
    told: list[str] = []
    assert [span.name for span in read_spans(tmp_path, on_damaged=told.append)] == ["span 1"]
    assert not told


@pytest.mark.parametrize(
    "bad", ["{\n", "[]\n", '{"name": "x"}\n', '{"name":"x","start":"y","end":1}\n', "\xff\x00\n"]
)
def test_a_damaged_line_is_told_and_left_out(tmp_path: Path, bad: str) -> None:
    write(tmp_path, 1, [line(1, 0, 1), bad, line(2, 1, 2)])
    told: list[str] = []
    found = [span.name for span in read_spans(tmp_path, on_damaged=told.append)]
    assert found == ["span 2", "span 1"]
    assert len(told) == 1
    assert "spans-000001.jsonl" in told[0]


def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    spans = []
    for number in range(5):
        record = json.loads(line(number, number, number + 1))
        record["attributes"] = {"text": "x" * 100_000}
        spans.append(json.dumps(record) + "\n")
    write(tmp_path, 1, spans)
    assert names(tmp_path) == [f"span {number}" for number in (4, 3, 2, 1, 0)]


def test_a_folder_without_spans_has_none(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    assert names(tmp_path / "nowhere") == []
    assert newest_end(tmp_path) is None


def test_a_file_that_is_rotated_away_meanwhile_is_passed_over(tmp_path: Path) -> None:
    old = write(tmp_path, 1, [line(1, 0, 1)])
    write(tmp_path, 2, [line(2, 1, 2)])
    spans = read_spans(tmp_path)
    first = next(spans)
    old.unlink()
    assert [first.name, *(span.name for span in spans)] == ["span 2"]


@pytest.fixture
def tracer() -> Iterator[tuple[TracerProvider, Tracer]]:
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider, provider.get_tracer("patchgym.test")
    provider.shutdown()


def test_what_is_written_is_read_back(
    tmp_path: Path, tracer: tuple[TracerProvider, Tracer]
) -> None:
    provider, make = tracer
    provider.add_span_processor(SpanWriter(SpanFiles(tmp_path / "trace", 1 << 20), print))
    with make.start_as_current_span("outer") as outer:
        with pytest.raises(ValueError), make.start_as_current_span("inner") as inner:
            inner.set_attributes({"text": "a\nb", "number": 3, "share": 0.5, "list": ["a", "b"]})
            raise ValueError("what happened")
    provider.shutdown()
    second, first = read_spans(tmp_path / "trace")
    assert (first.name, second.name) == ("inner", "outer")
    assert first.attributes == {"text": "a\nb", "number": 3, "share": 0.5, "list": ["a", "b"]}
    assert first.parent_id == second.span_id == f"{outer.get_span_context().span_id:016x}"
    assert first.trace_id == second.trace_id
    assert second.start <= first.start <= first.end <= second.end
    assert (first.status, second.status) == ("error", "unset")
    assert first.words == "ValueError: what happened"
    assert first.scope == "patchgym.test"


def test_files_stay_within_their_bound_and_the_oldest_go(
    tmp_path: Path, tracer: tuple[TracerProvider, Tracer]
) -> None:
    provider, make = tracer
    most = 1 << 20
    writer = SpanWriter(SpanFiles(tmp_path, most), print)
    provider.add_span_processor(writer)
    for number in range(3000):
        with make.start_as_current_span(f"span {number}") as span:
            span.set_attribute("text", "x" * 500)
        if number % 100 == 99:
            writer.force_flush()
    provider.shutdown()
    files = span_files(tmp_path)
    assert sum(path.stat().st_size for path in files) <= most
    assert len(files) > 4
    kept = [int(name.split()[1]) for name in names(tmp_path)]
    assert kept == list(range(2999, 2999 - len(kept), -1))
    assert len(kept) > 1000


def test_a_run_that_goes_on_writes_into_files_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        files = SpanFiles(tmp_path, 1 << 20)
        files.write([line(1, 0, 1).encode()])
        files.close()
    assert [path.name for path in span_files(tmp_path)] == [
        "spans-000001.jsonl",
        "spans-000002.jsonl",
    ]


FULL = """
import resource, sys
from pathlib import Path
from opentelemetry.sdk.trace import TracerProvider
from patchgym.trainer.telemetry.span_writer import SpanFiles, SpanWriter

writer = SpanWriter(SpanFiles(Path(sys.argv[1]), 1 << 20), print)
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(writer)
make = provider.get_tracer("test")

def some(name):
    for _ in range(40):
        with make.start_as_current_span(name):
            pass
    writer.force_flush()

some("before")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
[file] = Path(sys.argv[1]).iterdir()
resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 50, hard))
some("full")
some("full")
print(writer.lost, "lost")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
some("after")
provider.shutdown()
"""


def test_a_disk_without_room_is_told_once_and_leaves_no_half_line(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert hard == resource.RLIM_INFINITY, "this test lowers the limit for a child, and raises it"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    told = done.stdout.splitlines()
    assert len(told) == 2, told
    assert "File too large" in told[0]
    assert "not kept until they can be" in told[0]
    assert int(told[1].split()[0]) == 80
    damaged: list[str] = []
    found = [span.name for span in read_spans(tmp_path, on_damaged=damaged.append)]
    assert found == ["after"] * 40 + ["before"] * 40
    assert not damaged
