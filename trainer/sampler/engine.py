"""Continuous batching: one thread owns the banks and steps them until it is told to stop.

    submit ──► line ──► admit: a slot in a bank on the newest weights, or in an idle bank
                          │    (which adopts them); the known part of the context is copied
                          │    from the prefix cache, the rest is read in
                          ▼
                        launch: N tokens for every turn of the banks that share a version
                          │
                          ▼
                        finish: the slot is free, its keys and values go to the prefix cache,
                                the caller is told

A turn ends on the weights that it began with. New weights (`adopt`) drain nothing: from then on
turns begin only in banks that have them or are idle, and the others empty by themselves.

The event loop's side calls `submit`, `cancel`, `adopt`, `stop` and `statistics`; each takes a lock
for a moment and never waits for the engine's work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.sampler_config import SamplerConfig

from . import kernels, kv_cache
from .bank import Bank, VersionedWeights
from .errors import SamplerError
from .native_attention import serves
from .prefix_cache import Prefix, PrefixCache
from .statistics import SamplerStatistics
from .turn import Finish, Turn

ROWS = 16
"""Slots of a bank, at most: more compile fewer programs, fewer leave less idle in the tail."""

WINDOWS = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768)
"""Tokens a slot may have room for; each used size is compiled once."""

CHUNKS = (32, 64, 128, 256)
"""Tokens of a context that are read in at once; each used size is compiled once."""

PREFILL_SHARE = 512
"""Context tokens read in between two launches, roughly, while other turns wait to go on."""


class Engine:
    """The state of a sampler and the loop that steps it; `run` is the thread's body."""

    def __init__(
        self, config: SamplerConfig, model: ModelConfig, weights: VersionedWeights
    ) -> None:
        self._config, self._model, self._newest = config, model, weights
        rows = min(ROWS, config.slots)
        # Twice the slots: those on older weights finish while as many begin on the newest.
        dtype = kv_cache.cache_dtype(model, config.dtype)
        self._banks = [Bank(model, rows, dtype) for _ in range(2 * -(-config.slots // rows))]
        self._native = serves(model)
        self._prefixes = PrefixCache(config.prefix_cache_mib << 20)
        self._prefixes.clear(weights.version)
        self._wake = threading.Condition()
        self._line: deque[Turn] = deque()
        self._stopping = False
        self._failure: BaseException | None = None
        self._count: Counter[str] = Counter()
        self._busy: dict[str, float] = defaultdict(float)
        self.doing = "starting"
        self.since = time.monotonic()

    # -- called from the event loop ------------------------------------------------------------

    @property
    def version(self) -> int:
        """Of the newest weights."""
        return self._newest.version

    def submit(self, turn: Turn) -> None:
        """Put `turn` in line; raises SamplerError when the engine is not running."""
        with self._wake:
            if self._failure is not None:
                raise failed(self._failure)
            if self._stopping:
                raise SamplerError("the sampler is closed")
            self._line.append(turn)
            self._wake.notify()

    def cancel(self, turn: Turn) -> None:
        """Give the place of `turn` back; it is not told."""
        with self._wake:
            turn.cancelled = True
            self._wake.notify()

    def adopt(self, weights: VersionedWeights) -> None:
        """Begin new turns on `weights`."""
        with self._wake:
            if self._failure is not None:
                raise failed(self._failure)
            if weights.version <= self._newest.version:
                raise ValueError(
                    f"version {weights.version} is not newer than {self._newest.version}"
                )
            self._newest = weights

    def stop(self) -> None:
        """End `run` after the launch in progress."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def statistics(self) -> SamplerStatistics:
        """A snapshot."""
        with self._wake:
            return SamplerStatistics(
                version=self._newest.version,
                sampled_tokens=self._count["sampled"],
                discarded_tokens=self._count["discarded"],
                prefill_tokens=self._count["prefill"],
                cached_tokens=self._count["cached"],
                completions=self._count["completions"],
                cancelled=self._count["cancelled"],
                active=sum(bank.active for bank in self._banks),
                queued=len(self._line),
                busy_seconds=dict(self._busy),
                prefix_cache_bytes=self._prefixes.bytes,
            )

    # -- the thread ----------------------------------------------------------------------------

    def run(self) -> None:
        """Step until `stop`; whatever goes wrong is told to every turn, and to later ones."""
        try:
            while self._wait_for_work():
                self._admit()
                for group in self._groups():
                    self._launch(group)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)

    def _wait_for_work(self) -> bool:
        """Sleep until there is a turn to step; False when told to stop."""
        with self._wake:
            self._drop_cancelled()
            while not self._stopping and not self._line and not self._active():
                self._now("idle")
                self._wake.wait()
                self._drop_cancelled()
            return not self._stopping

    def _active(self) -> int:
        return sum(bank.active for bank in self._banks)

    def _drop_cancelled(self) -> None:
        waiting = [turn for turn in self._line if not turn.cancelled]
        self._count["cancelled"] += len(self._line) - len(waiting)
        self._line = deque(waiting)
        for bank in self._banks:
            for row, turn in list(bank.running()):
                if turn.cancelled:
                    bank.release(row)
                    self._count["cancelled"] += 1

    def _end(self, error: BaseException | None) -> None:
        with self._wake:
            self._failure = error
            self._stopping = True
            turns = [*self._line, *(turn for bank in self._banks for _, turn in bank.running())]
            self._line.clear()
        reason = SamplerError("the sampler was closed") if error is None else failed(error)
        for turn in turns:
            turn.deliver(reason)

    def _now(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        """Count the time of a piece of work, and let a stalled caller name it."""
        self._now(kind)
        start = time.perf_counter()
        yield
        self._busy[kind] += time.perf_counter() - start

    # -- beginning turns -----------------------------------------------------------------------

    def _admit(self) -> None:
        """Give slots to turns in line, while there are any."""
        read = 0
        while self._active() < self._config.slots and (read < PREFILL_SHARE or not self._active()):
            with self._wake:
                turn = self._line.popleft() if self._line else None
                newest = self._newest
            if turn is None:
                return
            read += self._begin(turn, newest)

    def _begin(self, turn: Turn, newest: VersionedWeights) -> int:
        """Read the context of `turn` into a slot; returns how many tokens that took."""
        context = turn.request.tokens[:-1]
        if self._prefixes.version != newest.version:
            self._prefixes.clear(newest.version)
        prefix, known = self._prefixes.find(context)
        chunks = chunks_for(len(context) - known)
        room = len(context) + 1 + turn.request.max_new_tokens + self._config.steps_per_launch
        bank = self._bank_for(newest, window_for(max(room, known + sum(chunks))))
        row = bank.turns.index(None)
        bank.occupy(row, turn)
        if prefix is not None:
            with self._timed("copy"):
                bank.insert(row, prefix.stored[:, :, :, :known])
        with self._timed("prefill"):
            bank.prefill(row, context[known:], known, chunks)
            bank.wait()
        self._count["prefill"] += len(context) - known
        self._count["cached"] += known
        self._keep(bank, row, context)
        return len(context) - known

    def _bank_for(self, newest: VersionedWeights, window: int) -> Bank:
        """The fullest bank on the newest weights that has a free slot, else an idle one.

        One that is roomy enough comes before one that would have to grow.
        """
        free = [bank for bank in self._banks if bank.active < bank.rows]
        ours = [bank for bank in free if bank.active and bank.weights is newest]
        roomy = [bank for bank in ours if bank.window >= window]
        idle = [bank for bank in free if not bank.active]
        bank = max(roomy or idle or ours, key=lambda bank: bank.active)
        bank.weights = newest
        bank.make_room(window)
        return bank

    def _keep(self, bank: Bank, row: int, tokens: Sequence[int]) -> None:
        """Copy what a slot holds for `tokens` to the prefix cache, if that is of any use."""
        current = bank.weights is not None and bank.weights.version == self._prefixes.version
        if current and self._prefixes.worth_adding(tokens):
            with self._timed("copy"):
                stored = bank.extract(row, len(tokens))
                self._prefixes.add(Prefix(tokens=np.asarray(tokens, np.int32), stored=stored))

    # -- running turns -------------------------------------------------------------------------

    def _groups(self) -> list[list[Bank]]:
        """Banks to launch together: of the same weights, powers of two at a time."""
        alike: dict[int, list[Bank]] = {}
        for bank in self._banks:
            if bank.active and bank.weights is not None:
                alike.setdefault(bank.weights.version, []).append(bank)
        groups: list[list[Bank]] = []
        for banks in alike.values():
            # One launch over the widest window beats two, each of which reads all the weights.
            widest = max(bank.window for bank in banks)
            for bank in banks:
                bank.make_room(widest)
            while banks:
                size = 1 << (len(banks).bit_length() - 1)
                groups.append(banks[:size])
                banks = banks[size:]
        return groups

    def _launch(self, banks: list[Bank]) -> None:
        """Sample some tokens for every turn of `banks`."""
        steps, held = self._config.steps_per_launch, banks[0].weights
        assert held is not None
        draws = np.zeros((steps, len(banks), banks[0].rows), np.float32)
        temperatures = np.ones((len(banks), banks[0].rows), np.float32)
        for place, bank in enumerate(banks):
            for row, turn in bank.running():
                draws[:, place, row] = turn.upcoming(steps)
                temperatures[place, row] = turn.request.temperature
        with self._timed("decode"):
            caches, sampled, logprobs = kernels.decode(
                self._model,
                held.weights,
                [bank.cache for bank in banks],
                jnp.asarray(np.concatenate([bank.tokens for bank in banks])),
                jnp.asarray(np.concatenate([bank.positions for bank in banks])),
                jnp.asarray(draws.reshape(steps, -1)),
                jnp.asarray(temperatures.reshape(-1)),
                native=self._native,
            )
            tokens = np.asarray(sampled).reshape(draws.shape)
            scores = np.asarray(logprobs).reshape(draws.shape)
        if not np.isfinite(scores).all():
            raise SamplerError(f"weights of version {held.version} give logprobs not finite")
        for place, bank in enumerate(banks):
            bank.cache = caches[place]
            for row, turn in list(bank.running()):
                self._take(bank, row, turn, tokens[:, place, row], scores[:, place, row])

    def _take(
        self,
        bank: Bank,
        row: int,
        turn: Turn,
        tokens: np.ndarray[tuple[int], np.dtype[np.int32]],
        logprobs: np.ndarray[tuple[int], np.dtype[np.float32]],
    ) -> None:
        """Give one turn what a launch sampled for it, and end it where it ends."""
        pairs = zip(tokens.tolist(), logprobs.tolist(), strict=True)
        for used, (token, logprob) in enumerate(pairs, 1):
            finish = turn.accept(token, logprob)
            if finish is not None:
                self._count["sampled"] += used
                self._count["discarded"] += len(tokens) - used
                self._finish(bank, row, turn, finish)
                return
        self._count["sampled"] += len(tokens)
        bank.tokens[row] = tokens[-1]
        bank.positions[row] += len(tokens)

    def _finish(self, bank: Bank, row: int, turn: Turn, finish: Finish) -> None:
        """Keep what the next turn will begin with, free the slot, tell the caller."""
        assert bank.weights is not None
        # The last token was sampled and never read in.
        self._keep(bank, row, (*turn.request.tokens, *turn.tokens[:-1]))
        bank.release(row)
        self._count["completions"] += 1
        turn.deliver(turn.completion(bank.weights.version, finish))


def window_for(tokens: int) -> int:
    """The smallest window that holds `tokens`."""
    return next((size for size in WINDOWS if size >= tokens), -(-tokens // 1024) * 1024)


def chunks_for(tokens: int) -> list[int]:
    """Sizes of the pieces in which `tokens` are read in; only the last is padded."""
    largest = CHUNKS[-1]
    chunks = [largest] * (tokens // largest)
    rest = tokens % largest
    return chunks + [min(size for size in CHUNKS if size >= rest)] if rest else chunks


def failed(error: BaseException) -> SamplerError:
    """What callers are told when the engine failed with `error`."""
    kind = "" if isinstance(error, SamplerError) else f"{type(error).__name__}: "
    told = SamplerError(f"the sampler failed: {kind}{error}")
    told.__cause__ = error
    return told
