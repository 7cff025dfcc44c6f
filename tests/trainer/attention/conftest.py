"""Random rows: forests in depth-first order, side by side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

Ints = npt.NDArray[np.int32]
Rows = Callable[[np.random.Generator, int, int], tuple[Ints, Ints]]


def _grow(
    rng: np.random.Generator, row: tuple[Ints, Ints], start: int, stop: int, depth: int
) -> None:
    """Fill `start` to `stop` with trees, each a run of tokens and the trees that follow it."""
    ends, positions = row
    while start < stop:
        last = start + int(rng.integers(1, stop - start + 1))
        run = int(rng.integers(1, last - start + 1))
        ends[start : start + run] = last
        positions[start : start + run] = np.arange(depth, depth + run)
        _grow(rng, row, start + run, last, depth + run)
        start = last


@pytest.fixture(scope="session")
def random_rows() -> Rows:
    """Makes `ends` and `positions` [B, T] of rows of trees, from a generator, B and T."""

    def make(rng: np.random.Generator, rows: int, length: int) -> tuple[Ints, Ints]:
        ends, positions = np.zeros((2, rows, length), np.int32)
        for row in range(rows):
            _grow(rng, (ends[row], positions[row]), 0, length, 0)
        return ends, positions

    return make
