"""Which host gets what: decisions without any I/O.

Of the hosts that are up and not draining, one with room whose load (what it holds by what it
takes) is least; but one that has the wanted image warm is preferred while its load is at most
`WARM_BONUS` above that, and before it one that was given the same work already, while its load is
at most `SAME_BONUS` above. Those who wait are served in the order in which they came.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

WARM_BONUS = 0.25
"""Load above the least one at which a warm image is still worth going to."""
SAME_BONUS = 4.0
"""The same for a host that has done the same work, and may still know what came of it."""
REMEMBERED = 64
"""Images of a host that count as warm, the latest ones."""
KNOWN = 4096
"""Works that a host counts as having done, the latest ones."""


@dataclass(slots=True, eq=False)
class Place:
    """A host, to the one who decides."""

    name: str
    size: int
    """How much it takes at a time."""
    held: int = 0
    draining: bool = False
    warm: OrderedDict[str, None] = field(default_factory=OrderedDict)
    done: OrderedDict[str, None] = field(default_factory=OrderedDict)

    @property
    def load(self) -> float:
        """Share of it that is taken; above 1 where more waits there."""
        return self.held / self.size

    def remember(self, key: str, work: str = "") -> None:
        """It has this image from now on, and has been given this work."""
        _note(self.warm, key, REMEMBERED)
        if work:
            _note(self.done, work, KNOWN)


@dataclass(slots=True, eq=False)
class Asking:
    """One who wants a place; `woken` is set with it."""

    key: str
    only: str | None = None
    """The one host that will do."""
    work: str = ""
    """What it is for, where the same may come again."""
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

    def ask(self, key: str, *, only: str | None = None, work: str = "") -> Asking:
        """Ask for a place; look at `place`, or wait for `woken`."""
        asking = Asking(key, only, work)
        self.waiting.append(asking)
        self._serve()
        return asking

    async def acquire(self, key: str, *, only: str | None = None, work: str = "") -> Place:
        """A place, however long that takes; cancelled, it costs nothing."""
        asking = self.ask(key, only=only, work=work)
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
            counts = {name: len(each) for name, each in spread.items()}
            place = self._best(Asking(key), extra=counts)
            if place is not None:
                spread[place.name].append(key)
                place.remember(key)
        return spread

    def _serve(self) -> None:
        for asking in tuple(self.waiting):
            place = self._best(asking, extra={})
            if place is None:
                continue
            self.waiting.remove(asking)
            place.held += 1
            place.remember(asking.key, asking.work)
            asking.place = place
            asking.woken.set()

    def _best(self, asking: Asking, *, extra: dict[str, int]) -> Place | None:
        fit = [
            each
            for each in self.places.values()
            if not each.draining
            and asking.only in (None, each.name)
            and (extra or not self._capped or each.held < each.size)
        ]
        if not fit:
            return None

        def load(place: Place) -> float:
            return place.load + extra.get(place.name, 0) / place.size

        least = min(map(load, fit))
        same = [p for p in fit if asking.work in p.done and load(p) <= least + SAME_BONUS]
        warm = [p for p in fit if asking.key in p.warm and load(p) <= least + WARM_BONUS]
        return min(same or warm or fit, key=load)


def _note(known: OrderedDict[str, None], key: str, most: int) -> None:
    known[key] = None
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)
