"""What Ray's autoscaler is told: how many sandbox hosts the work at hand would fill."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from .cluster import import_ray
from .placement import Placement

EVERY = 5.0  # seconds between hints


def wanted(placement: Placement, waiting: int, most: int) -> int:
    """Hosts that what is held and what waits for a sandbox would fill, from 1 to `most`."""
    places = placement.places.values()
    size = max((place.size for place in places), default=1)
    busy = sum(min(place.held, place.size) for place in places) + waiting
    return max(min(math.ceil(busy / size), most), 1)


class Demand:
    """Tells the autoscaler while it is followed, whenever the number changes. Without a limit, or
    in a cluster without an autoscaler, nothing happens."""

    def __init__(self, resource: str, most: int) -> None:
        self._resource, self._most = resource, most
        self.told = 0
        """The last number that was told."""

    @asynccontextmanager
    async def followed(
        self, placement: Placement, waiting: Callable[[], int]
    ) -> AsyncIterator[None]:
        """For the length of the block; nothing is asked for after it. `waiting` counts those who
        wait for a sandbox."""
        if not self._most:
            yield
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, placement, waiting)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.tell(0)

    async def tell(self, hosts: int) -> None:
        """Ask for so many nodes with the resource; 0 takes the request back."""
        if hosts == self.told:
            return
        import_ray()
        from ray.autoscaler.sdk import request_resources

        bundles = [{self._resource: 1}] * hosts
        with contextlib.suppress(Exception):  # a hint: a cluster without an autoscaler ignores it
            await anyio.to_thread.run_sync(lambda: request_resources(bundles=bundles))
            self.told = hosts

    async def _follow(self, placement: Placement, waiting: Callable[[], int]) -> None:
        while True:
            await self.tell(wanted(placement, waiting(), self._most))
            await anyio.sleep(EVERY)
