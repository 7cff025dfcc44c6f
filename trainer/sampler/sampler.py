"""The policy that rollouts ask: an embedded sampler on JAX, with the learner's own weights."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

import anyio
import anyio.to_thread
import jax

from patchgym.agent.policy import Completion, PolicyLoad, SampleRequest
from patchgym.trainer.model.compilation import keep_compiled_programs
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.model.tokenizer import Tokenizer
from patchgym.trainer.sampler_config import SamplerConfig

from . import kernels
from .bank import VersionedWeights
from .engine import Engine
from .errors import ContextOverflow, SamplerError
from .statistics import SamplerStatistics
from .turn import Outcome, Turn

STALL_LIMIT = 900.0
"""Seconds that one piece of the engine's work may take, compilation included."""

CLOSE_LIMIT = 120.0
"""Seconds that the launch in progress may take when the sampler closes."""


class JaxSampler:
    """Samples turns for many rollouts at once; an async context manager.

    Implements `patchgym.agent.Policy`. Works under asyncio and trio; all work happens in one
    thread of its own, so that no call blocks the event loop.
    """

    def __init__(
        self,
        config: SamplerConfig,
        model: ModelConfig,
        params: Params,
        tokenizer: Tokenizer,
        *,
        version: int = 0,
    ) -> None:
        """`params` are float32 weights of `model`, to be known as `version`."""
        self._config, self._model, self._tokenizer = config, model, tokenizer
        self._initial: Params | None = params
        self._shapes = _shapes(params)
        self._version = version
        self._context = min(config.context, model.context)
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._soon: Callable[[Callable[[], None]], object] | None = None

    async def __aenter__(self) -> JaxSampler:
        """Lay the weights out and start the engine's thread."""
        if self._initial is None:
            raise SamplerError("a sampler is opened once; make a new one")
        keep_compiled_programs(self._config.compilation_cache)
        weights = await anyio.to_thread.run_sync(self._lay_out, self._initial, self._version)
        self._initial = None
        self._soon = _loop_caller()
        self._engine = Engine(self._config, self._model, weights)
        self._thread = threading.Thread(
            target=_run_quietly, args=(self._engine,), name="patchgym-sampler", daemon=True
        )
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop after the launch in progress; turns still waiting are told."""
        engine, thread = self._opened()
        assert thread is not None
        engine.stop()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(thread.join, CLOSE_LIMIT))
        if thread.is_alive() and error is None:
            raise SamplerError(f"the sampler did not stop in {CLOSE_LIMIT:.0f} s: {engine.doing}")

    @property
    def version(self) -> int:
        """The newest version of the weights; a turn that begins now is sampled with it."""
        return self._version if self._engine is None else self._engine.version

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn; see `patchgym.agent.Policy`.

        Raises ContextOverflow when the context and `max_new_tokens` don't fit the window,
        ValueError for a request that makes no sense, SamplerError when the engine failed, was
        closed, or is stuck. Cancelling the call frees the turn's slot.
        """
        engine, _ = self._opened()
        self._check(request)
        done, outcomes = anyio.Event(), list[Outcome]()

        def settle(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        turn = Turn(request, self._tokenizer, lambda outcome: self._tell(settle, outcome))
        engine.submit(turn)
        try:
            await _wait(done, engine)
        finally:
            if not outcomes:
                engine.cancel(turn)
        outcome = outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def publish(self, params: Params, version: int) -> None:
        """Begin turns on these weights from now on; running turns end on those they began with.

        `params` may be changed or freed when this returns. Raises ValueError unless `version` is
        newer than the present one, or when `params` don't have the model's names and shapes.
        """
        engine, _ = self._opened()
        if _shapes(params) != self._shapes:
            raise ValueError(
                f"weights of version {version} don't have the names and shapes of the"
                " model that the sampler was opened with"
            )
        if version <= engine.version:
            raise ValueError(f"version {version} is not newer than {engine.version}")
        engine.adopt(await anyio.to_thread.run_sync(self._lay_out, params, version))

    def statistics(self) -> SamplerStatistics:
        """A snapshot of counts and times."""
        return self._opened()[0].statistics()

    def load(self) -> PolicyLoad:
        """Turns running and in line. Memory is laid out whole at the start: it never runs short."""
        now = self.statistics()
        return PolicyLoad(running=now.active, waiting=now.queued)

    def _opened(self) -> tuple[Engine, threading.Thread | None]:
        if self._engine is None:
            raise SamplerError("the sampler is not open: use `async with`")
        return self._engine, self._thread

    def _lay_out(self, params: Params, version: int) -> VersionedWeights:
        whole = jax.tree.map(_on_one_device, params)
        weights = kernels.lay_out(self._model, whole, self._config.dtype)
        for array in jax.tree.leaves(weights):
            array.block_until_ready()
        return VersionedWeights(version, weights)

    def _check(self, request: SampleRequest) -> None:
        """Refuse what would fail later or differently."""
        if not request.tokens:
            raise ValueError("the context is empty: a model continues at least one token")
        if request.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {request.max_new_tokens}: it must be at least 1")
        if request.temperature < 0:
            raise ValueError(f"temperature is {request.temperature}: it can't be negative")
        if not 0 <= min(request.tokens) <= max(request.tokens) < self._model.vocabulary:
            raise ValueError(f"token ids must be in [0, {self._model.vocabulary})")
        if len(request.tokens) + request.max_new_tokens > self._context:
            raise ContextOverflow(
                f"a context of {len(request.tokens)} tokens and {request.max_new_tokens} new ones"
                f" don't fit the window of {self._context}: shorten it, or raise sampler.context"
                f" (the model was trained for {self._model.context})"
            )

    def _tell(self, settle: Callable[[Outcome], None], outcome: Outcome) -> None:
        """Hand an outcome to the event loop, from the engine's thread."""
        assert self._soon is not None
        # A loop that was closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._soon(partial(settle, outcome))


def _shapes(params: Params) -> object:
    """Names, shapes and types of weights, for comparing."""
    return jax.tree.map(lambda array: (array.shape, str(array.dtype)), params)


def _on_one_device(array: jax.Array) -> jax.Array:
    """`array` on this process's first device, where it is split over several."""
    if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1:
        whole: jax.Array = jax.device_put(array, jax.local_devices()[0])
        return whole
    return array


def _loop_caller() -> Callable[[Callable[[], None]], object]:
    """A way for another thread to call something on the running event loop without waiting."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


async def _wait(done: anyio.Event, engine: Engine) -> None:
    """Wait for an outcome for as long as the engine gets anywhere."""
    while not done.is_set():
        with anyio.move_on_after(STALL_LIMIT / 10):
            await done.wait()
        stalled = time.monotonic() - engine.since
        if stalled > STALL_LIMIT and not done.is_set():
            raise SamplerError(
                f"the sampler has been stuck in {engine.doing!r} for {stalled:.0f} s"
            )


def _run_quietly(engine: Engine) -> None:
    """The thread's body; a failure was told to the waiting turns, so it ends the thread only."""
    with contextlib.suppress(Exception):
        engine.run()
