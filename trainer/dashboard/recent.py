"""What was read of the runs that were looked at last, for threads that look at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The `most` values that were put in or made last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """None when it is not there."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """In place of an earlier one."""
        with self._lock:
            self._values[key] = value
            self._trim(key)

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`, made when it is not there; threads that ask at once get the same."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._trim(key)
            return self._values[key]

    def _trim(self, newest: K) -> None:
        self._values.move_to_end(newest)
        while len(self._values) > self._most:
            self._values.popitem(last=False)
