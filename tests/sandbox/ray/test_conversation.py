"""A host's side of conversations, called as the actor would be."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from patchgym.sandbox import SandboxLost
from patchgym.sandbox.ray import Conversations, Handler, Peer, Talk


class Holding:
    """A service that tells what is held."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.closed = False

    def handlers(self) -> Mapping[str, Handler]:
        return {"hold": self.hold}

    async def hold(self, talk: Talk, name: str) -> None:
        self.held.add(name)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
            self.held.discard(name)

    async def aclose(self) -> None:
        self.closed = True


async def held(host: Conversations, session: str, service: Holding, name: str) -> None:
    peer = Peer({}, other="host")
    async with peer.serving():
        peer.open("hold", name)
        await host.post(session, await peer.take(None))
    while name not in service.held:  # noqa: ASYNC110
        await anyio.sleep(0.005)


async def test_a_new_conversation_ends_the_old_one_with_all_that_it_held() -> None:
    service = Holding()
    host = Conversations(service, silence=60)
    await host.begin("first")
    await held(host, "first", service, "a")
    hello = await host.begin("second")
    assert hello.patchgym and service.held == set()
    for call in (host.events("first"), host.post("first", [])):
        with pytest.raises(SandboxLost, match="this conversation is over"):
            await call
    await held(host, "second", service, "b")
    await host.close()
    assert service.held == set() and service.closed


async def test_a_driver_that_says_nothing_any_more_is_gone() -> None:
    service = Holding()
    host = Conversations(service, silence=0.3)
    await host.begin("first")
    await held(host, "first", service, "a")
    with anyio.fail_after(10):
        while service.held:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    with pytest.raises(SandboxLost):
        await host.events("first")
    await host.close()


async def test_a_driver_that_asks_is_not_gone() -> None:
    service = Holding()
    host = Conversations(service, silence=0.5)
    await host.begin("first")
    await held(host, "first", service, "a")
    for _ in range(3):
        assert await host.events("first") == []
    assert "a" in service.held
    await host.close()
