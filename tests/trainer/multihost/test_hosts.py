"""Commands to other processes over real connections; the other side is played in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import pytest

from patchgym.trainer.multihost import hosts as hosts_module
from patchgym.trainer.multihost.errors import HostLost
from patchgym.trainer.multihost.hosts import Host, Hosts
from patchgym.trainer.multihost.wire import Line, LineLost, Message

Player = Callable[[Line, Message], None]


def obey(line: Line, message: Message) -> None:
    if message.kind not in ("row", "hold"):
        line.send("done")


@contextmanager
def hosts(play: Player = obey) -> Iterator[tuple[Hosts, Line, list[Message]]]:
    """One other process, its line, and what it was told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    heard: list[Message] = []
    line = Line(far)

    def follow() -> None:
        line.send("hello", index=1, machine="b", pid=7)
        try:
            while (message := line.receive(20.0)).kind != "end":
                heard.append(message)
                play(line, message)
        except LineLost:
            pass

    thread = threading.Thread(target=follow)
    thread.start()
    host = Host(partial(Line, near))
    host.hello(10.0)
    found = Hosts([host])
    try:
        yield found, line, heard
    finally:
        found.end(clean=True)
        thread.join(20.0)
        host.line.close()
        line.close()


def test_a_turn_is_told_and_answered_and_turns_within_it_are_not() -> None:
    with hosts() as (told, _, heard):
        with told.turn("save", wait=True), told.turn("wait"):
            pass
        with told.turn("wait"):
            pass
        assert [(one.kind, one.fields) for one in heard] == [("save", {"wait": True}), ("wait", {})]


def test_what_can_wait_goes_with_the_next_turn_on_both_sides() -> None:
    here: list[int] = []
    with hosts() as (told, _, heard):
        told.later(partial(here.append, 3), "hold", step=3)
        assert (here, heard) == ([], [])
        with told.turn("wait"):
            assert here == [3]
        assert [one.kind for one in heard] == ["hold", "wait"]


def test_turns_of_two_threads_do_not_mix() -> None:
    with hosts() as (told, _, heard):

        def rows() -> None:
            for _ in range(20):
                with told.turn("train"):
                    told.tell("row", stop=False)

        threads = [threading.Thread(target=rows) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20.0)
        with told.turn("wait"):  # a row has no answer
            pass
        assert [one.kind for one in heard] == [*["train", "row"] * 40, "wait"]


def test_a_fault_of_the_other_process_is_told_with_its_name() -> None:
    def fail(line: Line, message: Message) -> None:
        line.send("done", error="CheckpointError: no room")

    name = r"process 1 of the learner \(b, pid 7\) is gone: CheckpointError: no room"
    with hosts(fail) as (told, _, _), pytest.raises(HostLost, match=name), told.turn("save"):
        pass


def test_another_result_than_here_ends_the_training() -> None:
    def find(line: Line, message: Message) -> None:
        line.send("done", found=message.fields["find"])

    with hosts(find) as (told, _, _):
        with told.turn("train", find=["loss 1.0"]) as turn:
            turn.found = ["loss 1.0"]
        with pytest.raises(HostLost, match=r"has \['loss 2.0'\] where this one has \['loss 1.0'\]"):
            with told.turn("train", find=["loss 2.0"]) as turn:
                turn.found = ["loss 1.0"]


def test_an_error_of_this_process_is_its_own_when_the_other_has_it_too() -> None:
    def fail(line: Line, message: Message) -> None:
        line.send("done", error="ValueError: too long")

    with hosts(fail) as (told, _, _), pytest.raises(ValueError, match="mine"):
        with told.turn("train"):
            raise ValueError("mine")


def test_a_lost_process_is_the_cause_of_a_collective_that_failed() -> None:
    def die(line: Line, message: Message) -> None:
        line.close()

    with hosts(die) as (told, _, _):
        with pytest.raises(HostLost, match="hung up") as caught:
            with told.turn("train"):
                raise RuntimeError("connection reset by a peer")
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert "process 1" in told.lost
        with pytest.raises(HostLost), told.turn("save"):
            raise AssertionError("nothing is begun without all")


def test_a_process_that_failed_is_lost_for_its_own_reason() -> None:
    def fail(line: Line, message: Message) -> None:
        line.send("failed", error="MemoryError: 3 GiB")
        line.close()

    with hosts(fail) as (told, _, _), pytest.raises(HostLost, match="MemoryError: 3 GiB"):
        with told.turn("train"):
            pass


async def test_a_loss_between_turns_ends_what_runs_beside() -> None:
    with hosts() as (told, line, _):
        with pytest.raises(HostLost, match="process 1"):
            with anyio.fail_after(20.0):
                line.close()
                await told.watch()


def test_a_collective_that_waits_for_a_lost_process_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[tuple[str, int]] = []
    gone = threading.Event()

    def leave(words: str, code: int) -> None:
        left.append((words, code))
        gone.set()

    monkeypatch.setattr(hosts_module, "leave", leave)
    monkeypatch.setattr(hosts_module, "GRACE", 0.2)
    with hosts(lambda line, message: line.close()) as (told, _, _):
        with pytest.raises(HostLost), told.turn("train"):
            assert gone.wait(20.0)
    ((words, code),) = left
    assert code == 2
    assert words.startswith("process 1 of the learner (b, pid 7) is gone: it hung up")
    assert words.endswith("what waited for it did not end in 0 s")
