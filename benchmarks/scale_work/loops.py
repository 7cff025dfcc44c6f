"""What `simpy` costs beside a bare loop over a heap: processes that do nothing but wait."""

from __future__ import annotations

import heapq
import time
from collections.abc import Generator
from typing import Any

import simpy

PROCESSES, WAITS = 20_000, 10


def measure() -> dict[str, float]:
    """Events a second of both, and the ratio."""
    library, heap = _library(), _heap()
    return {
        "simpy": round(library),
        "heap": round(heap),
        "heap_vs_simpy": round(heap / library, 2),
    }


def _waits(number: int) -> Generator[float, None, None]:
    for place in range(WAITS):
        yield 1 + (number * 7 + place) % 13 / 10


def _library() -> float:
    env = simpy.Environment()

    def process(number: int) -> Generator[simpy.Event, Any, None]:
        for seconds in _waits(number):
            yield env.timeout(seconds)

    for number in range(PROCESSES):
        env.process(process(number))
    began = time.perf_counter()
    env.run()
    return PROCESSES * WAITS / (time.perf_counter() - began)


def _heap() -> float:
    began = time.perf_counter()
    heap = []
    for number in range(PROCESSES):
        process = _waits(number)
        heapq.heappush(heap, (next(process), number, process))
    while heap:
        now, number, process = heapq.heappop(heap)
        seconds = next(process, None)
        if seconds is not None:
            heapq.heappush(heap, (now + seconds, number, process))
    return PROCESSES * WAITS / (time.perf_counter() - began)
