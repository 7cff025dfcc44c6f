"""Messages over real sockets: what arrives, what is refused, and how an end shows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.multihost.sequences import packed, unpacked
from patchgym.trainer.multihost.wire import Line, LineLost, LineSilent, decode, encode


@contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    try:
        yield one, other
    finally:
        one.close()
        other.close()


def test_a_message_arrives_as_it_was() -> None:
    big = np.arange(3_000_000, dtype=np.float32).reshape(3, -1)
    with sockets() as (one, other):
        sender, receiver = Line(one), Line(other)
        sending = threading.Thread(target=sender.send, args=("a", [big, np.zeros((0, 2), "i8")]))
        sending.start()
        sender_words = receiver.receive(10.0)
        sending.join()
        sender.send("b", step=3, names=["x"])
        said = receiver.receive(10.0)
        sender.close()
        receiver.close()
    assert sender_words.kind == "a"
    np.testing.assert_array_equal(sender_words.arrays[0], big)
    assert sender_words.arrays[1].shape == (0, 2)
    assert (said.kind, said.fields, said.arrays) == ("b", {"step": 3, "names": ["x"]}, [])


def test_the_other_sides_end_is_known_at_once_and_to_whoever_asks() -> None:
    told: list[str] = []
    known = threading.Event()

    def lost(words: str) -> None:
        told.append(words)
        known.set()

    with sockets() as (one, other):
        line = Line(one, lost)
        with pytest.raises(LineSilent, match=r"no answer in 0 s"):
            line.receive(0.01)
        other.close()
        assert known.wait(10.0)
        for _ in range(2):
            with pytest.raises(LineLost, match="hung up"):
                line.receive(10.0)
        line.close()
    assert told == ["it hung up"]


def test_an_end_that_was_told_is_no_loss() -> None:
    told: list[str] = []
    with sockets() as (one, other):
        line, peer = Line(one, told.append), Line(other)
        peer.send("end", clean=True)
        peer.close()
        assert line.receive(10.0).kind == "end"
        with pytest.raises(LineLost):
            line.receive(10.0)
        line.close()
    assert told == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no message of a learner"),
        (encode("a", [], {})[0][:-3], "in the middle"),
        (encode("a", [], {})[0][:5], "in the middle"),
    ],
)
def test_what_is_no_message_ends_the_line(data: bytes, words: str) -> None:
    with sockets() as (one, other):
        line = Line(one)
        other.sendall(data)
        other.close()
        with pytest.raises(LineLost, match=words):
            line.receive(10.0)
        line.close()


def test_objects_are_never_made_of_what_arrives() -> None:
    header = b'{"kind": "a", "fields": {}, "arrays": [["object", [1]]]}'
    frame = len(header).to_bytes(4) + (8).to_bytes(8) + header + bytes(8)
    parts = iter([frame[:12], frame[12:-8], frame[-8:]])
    with pytest.raises(ValueError, match="an array of object is no part of a message"):
        decode(lambda size: bytearray(next(parts)))


@given(
    st.lists(
        st.lists(
            arrays_of.arrays(np.int32, st.integers(1, 6), elements=st.integers(0, 2**31 - 1)),
            max_size=3,
        ),
        max_size=3,
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
def test_groups_come_out_as_they_went_in(
    tokens: list[list[np.ndarray]], advantage: float, first: bool
) -> None:
    groups = [
        [
            TrainSequence(
                tokens=each,
                loss_mask=np.arange(len(each)) > 0,
                sampler_logprobs=np.linspace(-3, 0, len(each), dtype=np.float32),
                advantage=advantage,
                first=first,
            )
            for each in group
        ]
        for group in tokens
    ]
    found = unpacked(*packed(groups))
    assert [len(group) for group in found] == [len(group) for group in groups]
    for ours, theirs in zip(groups, found, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.advantage, one.first) == (other.advantage, other.first)
            for name in ("tokens", "loss_mask", "sampler_logprobs"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
                assert getattr(one, name).dtype == getattr(other, name).dtype
