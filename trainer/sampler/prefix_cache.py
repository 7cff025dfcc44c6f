"""Keys and values of token prefixes seen before, so that they are not computed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Stored: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
"""Of a cache, in its type: float32, or bfloat16 as uint16."""

WORTHWHILE = 8
"""Tokens: a shorter common prefix costs more to copy than to compute."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefix:
    """What attention needs of a token sequence."""

    tokens: npt.NDArray[np.int32]
    """Ids [n]."""
    stored: Stored
    """Keys and values [L, 2, K, n, D]."""


class PrefixCache:
    """The least recently used prefixes go first; all go when the weights change.

    Any leading part of an entry serves: attention is causal, so a token's keys and values
    depend on nothing after it. Used by one thread.
    """

    def __init__(self, limit: int) -> None:
        """Hold at most `limit` bytes."""
        self._limit = limit
        self._entries: OrderedDict[int, Prefix] = OrderedDict()
        self._next = 0
        self.bytes = 0
        self.version = -1

    def find(self, tokens: Sequence[int]) -> tuple[Prefix | None, int]:
        """The entry that begins most like `tokens`, and how many tokens they share."""
        wanted = np.asarray(tokens, np.int32)
        shared = {key: common(entry.tokens, wanted) for key, entry in self._entries.items()}
        best = max(shared, key=lambda key: shared[key], default=None)
        if best is None or shared[best] < WORTHWHILE:
            return None, 0
        self._entries.move_to_end(best)
        return self._entries[best], shared[best]

    def worth_adding(self, tokens: Sequence[int]) -> bool:
        """Whether an entry of `tokens` would hold anything new."""
        if len(tokens) < WORTHWHILE or self._limit == 0:
            return False
        wanted = np.asarray(tokens, np.int32)
        return all(common(entry.tokens, wanted) < len(wanted) for entry in self._entries.values())

    def add(self, prefix: Prefix) -> None:
        """Keep `prefix`, instead of those that it begins with, and drop old ones to make room."""
        if prefix.stored.nbytes > self._limit:
            return
        for key, entry in list(self._entries.items()):
            if common(entry.tokens, prefix.tokens) == len(entry.tokens):
                self._drop(key)
        while self.bytes + prefix.stored.nbytes > self._limit:
            self._drop(next(iter(self._entries)))
        self._entries[self._next] = prefix
        self._next += 1
        self.bytes += prefix.stored.nbytes

    def clear(self, version: int) -> None:
        """Forget everything; from now on hold what weights of `version` computed."""
        self._entries.clear()
        self.bytes = 0
        self.version = version

    def _drop(self, key: int) -> None:
        self.bytes -= self._entries.pop(key).stored.nbytes


def common(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> int:
    """How many leading ids two sequences share."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length
