"""Values that many ask for at the same time and one of them makes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


@dataclass(slots=True)
class _Pending(Generic[T]):
    done: anyio.Event = field(default_factory=anyio.Event)
    made: list[T] = field(default_factory=list)
    """Empty until it is there, and for good when its maker was cancelled or failed."""


class Once(Generic[T]):
    """Makes each value once, and remembers the `remembered` ones that were used last.

    When the maker is cancelled or raises, one of those who wait makes the value in its place.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._pending: dict[str, _Pending[T]] = {}
        self._known: OrderedDict[str, T] = OrderedDict()
        self.waiting = 0
        """Calls that wait for another one's value."""

    async def get(
        self, key: str, make: Callable[[], Awaitable[T]], keep: Callable[[T], bool]
    ) -> tuple[T, bool]:
        """The value, and whether another call made it; remembered if `keep` says so."""
        while True:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key], True
            pending = self._pending.get(key)
            if pending is None:
                return await self._make(key, make, keep), False
            self.waiting += 1
            try:
                await pending.done.wait()
            finally:
                self.waiting -= 1
            if pending.made:
                return pending.made[0], True

    async def _make(
        self, key: str, make: Callable[[], Awaitable[T]], keep: Callable[[T], bool]
    ) -> T:
        pending = self._pending[key] = _Pending()
        try:
            value = await make()
            pending.made.append(value)
        finally:
            del self._pending[key]
            pending.done.set()
        if keep(value):
            self._known[key] = value
            while len(self._known) > self._remembered:
                self._known.popitem(last=False)
        return value
