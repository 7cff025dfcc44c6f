"""Values and the codec, without a daemon."""

from __future__ import annotations

import struct

import pytest

import patchgym.sandbox
from patchgym.sandbox import Output, SandboxSpec, SandboxUsageError
from patchgym.sandbox import supervisor as inside
from patchgym.sandbox.protocol import Demultiplexer, encode, run_fields


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "agent"},
        {"workdir": "relative"},
        {"workdir": "/tmp"},
        {"memory_mib": 1},
        {"pids": 1},
        {"cpus": 0.0},
    ],
)
def test_impossible_specs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SandboxUsageError):
        SandboxSpec(image="x", **wrong)  # type: ignore[arg-type]


def test_exports_exist() -> None:
    for name in patchgym.sandbox.__all__:
        assert hasattr(patchgym.sandbox, name)


def test_output_text() -> None:
    assert Output(head=b"a\xff\n").text() == "a\\xff\n"
    assert Output(head=b"a", tail=b"z", dropped=7).text() == "a\n[... 7 bytes dropped ...]\nz"


def test_both_codecs_agree() -> None:
    fields = run_fields(
        ["a", "b c"], timeout=1.5, cwd="/x", environment=[("K", "V=W")], stdin=b"\0\1",
        output_limit=10, report=True,
    )  # fmt: skip
    request = inside.Request(encode(b"R", 7, fields)[4:])
    assert (request.kind, request.number, request.fields) == (b"R", 7, fields)
    assert [value for tag, value in fields if tag == b"a"] == [b"a", b"b c"]
    assert {tag: request.one[tag] for tag in (b"e", b"d", b"t", b"l", b"p", b"i", b"s")} == {
        b"e": b"K=V=W", b"d": b"/x", b"t": b"1500", b"l": b"10", b"p": b"1", b"i": b"\0\1",
        b"s": b"0",
    }  # fmt: skip
    assert encode(b"C", 1 << 31) == inside.frame(b"C", 1 << 31, [])


def test_demultiplexer_takes_bytes_in_any_pieces() -> None:
    frames = inside.frame(b"F", 1, [(b"b", b"x" * 300)]) + inside.frame(b"K", 2, [])
    wire = b"".join(
        struct.pack(">BxxxI", 1, len(piece)) + piece for piece in (frames[:100], frames[100:])
    )
    wire += struct.pack(">BxxxI", 2, 4) + b"oops"
    for size in (1, 7, len(wire)):
        incoming, found = Demultiplexer(), []
        for at in range(0, len(wire), size):
            incoming.feed(wire[at : at + size])
            while (frame := incoming.next()) is not None:
                found.append((frame.kind, frame.request))
        assert found == [(b"F", 1), (b"K", 2)] and incoming.complaint == b"oops"


def test_kept_output_drops_the_middle() -> None:
    kept = inside.Kept(10)
    data = bytes(range(256)) * 4096
    for at in range(0, len(data), 50_000):
        kept.add(data[at : at + 50_000])
    kept.trim()
    assert (bytes(kept.head), bytes(kept.tail)) == (data[:5], data[-5:])
    assert kept.dropped == len(data) - 10


def test_zero_bytes_are_refused() -> None:
    for words in (["a\0b"], "a\0b"):
        with pytest.raises(SandboxUsageError):
            run_fields(words, timeout=1, cwd="/", environment=(), stdin=b"", output_limit=1)
