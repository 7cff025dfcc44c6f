"""Which of many has the least to do, without looking at all of them."""

from __future__ import annotations

import heapq


class Least:
    """Loads by number; a heap that forgets what is out of date when it comes up."""

    def __init__(self, count: int) -> None:
        self._loads: list[int | None] = [0] * count
        self._heap = [(0, number) for number in range(count)]

    def set(self, number: int, load: int | None) -> None:
        """Its load from now on; None takes it out."""
        self._loads[number] = load
        if load is not None:
            heapq.heappush(self._heap, (load, number))

    def first(self) -> int | None:
        """The number with the least load, the smallest of several; None when all are out."""
        heap, loads = self._heap, self._loads
        while heap:
            load, number = heap[0]
            if loads[number] == load:
                return number
            heapq.heappop(heap)
        return None
