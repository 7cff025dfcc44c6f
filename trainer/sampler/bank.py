"""A few slots that share one cache and one version of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from patchgym.trainer.model.config import ModelConfig

from . import kernels, kv_cache
from .prefix_cache import Stored
from .turn import Turn


@dataclass(frozen=True, slots=True, eq=False)
class VersionedWeights:
    """Weights laid out for sampling, and the version that completions will name."""

    version: int
    weights: kernels.Weights


@dataclass(slots=True, eq=False)
class Bank:
    """`rows` slots. While any turn runs, `weights` and the slots' contents stay as they are."""

    config: ModelConfig
    rows: int
    dtype: str = "float32"
    """Of the cache: see `kv_cache.cache_dtype`."""
    window: int = 0
    """Tokens that each slot has room for (S)."""
    weights: VersionedWeights | None = None
    cache: kv_cache.Cache = field(default_factory=list)
    turns: list[Turn | None] = field(init=False)
    tokens: npt.NDArray[np.int32] = field(init=False)
    """The token that each slot reads in next [R]."""
    positions: npt.NDArray[np.int32] = field(init=False)
    """Where it goes [R]."""

    def __post_init__(self) -> None:
        self.turns = [None] * self.rows
        self.tokens = np.zeros(self.rows, np.int32)
        self.positions = np.zeros(self.rows, np.int32)

    @property
    def active(self) -> int:
        """Turns running here."""
        return sum(turn is not None for turn in self.turns)

    def running(self) -> Iterator[tuple[int, Turn]]:
        """Slot and turn of those running here."""
        return ((row, turn) for row, turn in enumerate(self.turns) if turn is not None)

    def make_room(self, window: int) -> None:
        """See that each slot holds `window` tokens; an idle bank of twice that shrinks to it."""
        if window <= self.window and (self.active or self.window < 2 * window):
            return
        if self.active:
            self.cache = kv_cache.grow(self.cache, window)
        else:
            self.cache = []  # the old one's memory is free before the new one is taken
            self.cache = kv_cache.empty_cache(self.config, self.rows, window, self.dtype)
        self.window = window

    def insert(self, row: int, stored: Stored) -> None:
        """Put keys and values [L, 2, K, n, D] of a prefix at the start of a slot."""
        padding = [(0, 0)] * 3 + [(0, self.window - stored.shape[3]), (0, 0)]
        whole = jnp.asarray(np.pad(stored, padding))
        self.cache = kv_cache.insert(self.cache, jnp.int32(row), whole)

    def extract(self, row: int, length: int) -> Stored:
        """A copy of the first `length` tokens' keys and values of a slot, [L, 2, K, n, D]."""
        whole = kv_cache.extract(self.cache, jnp.int32(row))
        return np.ascontiguousarray(np.asarray(whole)[:, :, :, :length])

    def prefill(self, row: int, tokens: Sequence[int], start: int, chunks: Sequence[int]) -> None:
        """Read `tokens` into a slot from position `start`, in padded pieces of sizes `chunks`."""
        assert self.weights is not None
        padded = np.zeros(sum(chunks), np.int32)
        padded[: len(tokens)] = tokens
        for size in chunks:
            piece, padded = padded[:size], padded[size:]
            self.cache = kernels.prefill(
                self.config,
                self.weights.weights,
                self.cache,
                jnp.int32(row),
                jnp.asarray(piece),
                jnp.int32(start),
            )
            start += size

    def wait(self) -> None:
        """Block until the cache is computed; programs run behind the calls that start them."""
        self.cache[-1][-1].block_until_ready()

    def occupy(self, row: int, turn: Turn) -> None:
        """Begin sampling for `turn`, whose context but for its last token is in the slot."""
        context = turn.request.tokens
        self.turns[row] = turn
        self.tokens[row] = context[-1]
        self.positions[row] = len(context) - 1

    def release(self, row: int) -> None:
        """Free a slot; what it holds is overwritten by the next turn."""
        self.turns[row] = None
        self.tokens[row] = 0
        self.positions[row] = 0
