"""Which host gets what: decisions without any I/O.

Of the hosts that are up and not draining, one with room whose load (what it holds by what it
takes) is least; but one that has the wanted image warm is preferred while its load is at most
`WARM_BONUS` above that. Those who wait are served in the order in which they came.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

WARM_BONUS = 0.25
"""Load above the least one at which a warm image is still worth going to."""
REMEMBERED = 64
"""Images of a host that count as warm, the latest ones."""


@dataclass(slots=True, eq=False)
class Place:
    """A host, to the one who decides."""

    name: str
    size: int
    """How much it takes at a time."""
    held: int = 0
    draining: bool = False
    warm: OrderedDict[str, None] = field(default_factory=OrderedDict)

    @property
    def load(self) -> float:
        """Share of it that is taken; above 1 where more waits there."""
        return self.held / self.size

    def remember(self, key: str) -> None:
        """It has this image from now on."""
        self.warm[key] = None
        self.warm.move_to_end(key)
        while len(self.warm) > REMEMBERED:
            self.warm.popitem(last=False)


@dataclass(slots=True, eq=False)
class Asking:
    """One who wants a place; `woken` is set with it."""

    key: str
    only: str | None = None
    """The one host that will do."""
    woken: anyio.Event = field(default_factory=anyio.Event)
    place: Place | None = None


class Placement:
    """Hosts, what each holds, and who waits. With `capped`, none holds more than its size."""

    def __init__(self, *, capped: bool) -> None:
        self.places: dict[str, Place] = {}
        self.waiting: deque[Asking] = deque()
        self._capped = capped

    def up(self, name: str, size: int) -> None:
        """A host is there, with nothing in it."""
        self.places[name] = Place(name, size)
        self._serve()

    def down(self, name: str) -> None:
        """A host is gone with all that it held."""
        self.places.pop(name, None)

    def drain(self, name: str) -> None:
        """A host gets nothing more."""
        self.places[name].draining = True

    def shun(self, place: Place) -> None:
        """What was asked of it failed: it gets nothing more, until it comes up anew. A lost host
        fails at once, and would else be the one with the least to do."""
        place.draining = True

    def ask(self, key: str, *, only: str | None = None) -> Asking:
        """Ask for a place; look at `place`, or wait for `woken`."""
        asking = Asking(key, only)
        self.waiting.append(asking)
        self._serve()
        return asking

    async def acquire(self, key: str, *, only: str | None = None) -> Place:
        """A place, however long that takes; cancelled, it costs nothing."""
        asking = self.ask(key, only=only)
        try:
            if asking.place is None:
                await asking.woken.wait()
        except BaseException:
            self.withdraw(asking)
            raise
        assert asking.place is not None
        return asking.place

    def withdraw(self, asking: Asking) -> None:
        """Whoever asked wants it no more, whether it was served or not."""
        if asking.place is not None:
            self.release(asking.place)
        elif asking in self.waiting:
            self.waiting.remove(asking)

    def release(self, place: Place) -> None:
        """What was held there is over."""
        place.held -= 1
        self._serve()

    def expect(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """Spread images that will be wanted over the hosts, the soonest first; each by host."""
        spread: dict[str, list[str]] = {name: [] for name in self.places}
        for key in keys:
            place = self._best(key, None, extra={n: len(each) for n, each in spread.items()})
            if place is not None:
                spread[place.name].append(key)
                place.remember(key)
        return spread

    def _serve(self) -> None:
        for asking in tuple(self.waiting):
            place = self._best(asking.key, asking.only, extra={})
            if place is None:
                continue
            self.waiting.remove(asking)
            place.held += 1
            place.remember(asking.key)
            asking.place = place
            asking.woken.set()

    def _best(self, key: str, only: str | None, *, extra: dict[str, int]) -> Place | None:
        fit = [
            each
            for each in self.places.values()
            if not each.draining
            and only in (None, each.name)
            and (extra or not self._capped or each.held < each.size)
        ]
        if not fit:
            return None

        def load(place: Place) -> float:
            return place.load + extra.get(place.name, 0) / place.size

        least = min(map(load, fit))
        warm = [each for each in fit if key in each.warm and load(each) <= least + WARM_BONUS]
        return min(warm or fit, key=load)
