"""Two peers without Ray between them: talks, items, errors, cancellation, and the loss of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import anyio
import pytest

from patchgym.sandbox import LeaseTimeout, SandboxLost
from patchgym.sandbox.ray import EndOfTalk, Handler, Peer, RemoteFailure, Talk
from patchgym.sandbox.ray.peer import LINGER


@dataclass
class Wire:
    """Carries frames between two peers until it is cut."""

    here: Peer
    there: Peer
    batches: int = 0

    async def carry(self, source: Peer, target: Peer) -> None:
        """Every batch that waits to go."""
        while True:
            frames = await source.take(None)
            self.batches += 1
            target.feed(frames)


@asynccontextmanager
async def joined(handlers: Mapping[str, Handler]) -> AsyncIterator[Wire]:
    wire = Wire(Peer({}, other="there"), Peer(handlers, other="here"))
    async with wire.here.serving(), wire.there.serving(), anyio.create_task_group() as tasks:
        tasks.start_soon(wire.carry, wire.here, wire.there)
        tasks.start_soon(wire.carry, wire.there, wire.here)
        yield wire
        tasks.cancel_scope.cancel()


async def test_what_is_not_urgent_travels_with_what_is_and_never_waits_for_long() -> None:
    async def tell(talk: Talk) -> str:
        for number in range(3):
            talk.send(number, urgent=False)
            await anyio.sleep(0.002)
        return "told"

    async with joined({"tell": tell}) as wire:
        talk = wire.here.open("tell")
        assert [await talk.receive() for _ in range(3)] == [0, 1, 2]
        assert await talk.result() == "told"
        assert wire.batches == 2  # the call, and all that it said


async def test_what_is_alone_and_not_urgent_does_not_wait_for_long() -> None:
    async def alone(talk: Talk) -> None:
        talk.send("a stage", urgent=False)
        await anyio.sleep_forever()

    async with joined({"alone": alone}) as wire:
        begun = anyio.current_time()
        assert await wire.here.open("alone").receive() == "a stage"
        assert LINGER / 2 < anyio.current_time() - begun < 20 * LINGER


async def test_calls_answer_each_its_own() -> None:
    async def double(talk: Talk, number: int) -> int:
        await anyio.sleep(0.001 * (10 - number))  # the last asked is the first answered
        return 2 * number

    async with joined({"double": double}) as wire:
        answers: dict[int, int] = {}

        async def ask(number: int) -> None:
            answers[number] = await wire.here.call("double", number)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, number)
    assert answers == {number: 2 * number for number in range(10)}
    assert wire.batches < 20  # ten calls left in one batch


async def test_items_go_both_ways_in_order() -> None:
    async def echo(talk: Talk) -> str:
        while (item := await talk.receive()) is not None:
            talk.send(item)
        return "done"

    async with joined({"echo": echo}) as wire:
        talk = wire.here.open("echo")
        for item in ("a", b"b", 3):
            talk.send(item)
        assert [await talk.receive() for _ in range(3)] == ["a", b"b", 3]
        talk.send(None)
        assert await talk.result() == "done"
        with pytest.raises(EndOfTalk):
            await talk.receive()


async def test_errors_come_as_what_they_are() -> None:
    async def late(talk: Talk) -> None:
        raise LeaseTimeout("no sandbox within 3.0 s")

    async def odd(talk: Talk) -> None:
        raise KeyError("gone")

    async def opaque(talk: Talk) -> object:
        return MappingProxyType({})

    async with joined({"late": late, "odd": odd, "opaque": opaque}) as wire:
        with pytest.raises(LeaseTimeout, match=r"^no sandbox within 3.0 s$"):
            await wire.here.call("late")
        with pytest.raises(RemoteFailure, match="there: KeyError: 'gone'"):
            await wire.here.call("odd")
        with pytest.raises(RemoteFailure, match="TypeError: cannot pickle 'mappingproxy'"):
            await wire.here.call("opaque")
        with pytest.raises(RemoteFailure, match="KeyError: 'missing'"):
            await wire.here.call("missing")


async def test_a_cancelled_call_cancels_its_handler_and_waits_for_its_end() -> None:
    ended: list[str] = []

    async def hold(talk: Talk) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            ended.append("handler")

    async with joined({"hold": hold}) as wire:
        with anyio.move_on_after(0.05):
            await wire.here.call("hold")
        ended.append("caller")
    assert ended == ["handler", "caller"]


async def test_loss_ends_every_talk_at_both_ends() -> None:
    ended = anyio.Event()

    async def hold(talk: Talk) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with joined({"hold": hold}) as wire:
        talk = wire.here.open("hold")
        await anyio.sleep(0.02)
        wire.here.lose("no word from it for 20 s")
        wire.there.lose("no word")
        for wait in (talk.receive, talk.result):
            with pytest.raises(SandboxLost, match="there: no word from it for 20 s"):
                await wait()
        with pytest.raises(SandboxLost):
            await wire.here.call("hold")
        with anyio.fail_after(5):
            await ended.wait()
        talk.send("into the void")  # nobody is harmed


async def test_a_sender_waits_while_too_much_is_on_its_way() -> None:
    async def idle(talk: Talk) -> None:
        await anyio.sleep_forever()

    peer = Peer({}, other="there")
    async with peer.serving():
        talk = peer.open("idle")
        talk.send(b"x" * (9 << 20))
        with anyio.move_on_after(0.05) as scope:
            await talk.room()
        assert scope.cancelled_caught
        assert sum(len(frame.payload) for frame in await peer.take(None)) > 9 << 20
        with anyio.fail_after(5):
            await talk.room()
