"""vLLM in this process: one thread owns the engine, steps it, and loads new weights between steps.

sample() ─► orders ─► add ─► step, step, step ─► finished ─► told on the event loop
cancel   ─► orders ─► abort      ▲
push()   ─► orders ─► load weights, reset caches, recompute what runs
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from patchgym.agent.policy import Completion, PolicyLoad, SampleRequest

from .answers import check_request, completion_of
from .background import loop_caller
from .errors import (
    PolicyClosed,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    WeightPushError,
    one_line,
)
from .tensor_files import Shapes, difference, folder_shapes
from .vllm_wire import finish_of, sampling_fields, spans_of

START_LIMIT = 900.0
"""Seconds that loading the model may take."""

STALL_LIMIT = 900.0
"""Seconds that one step, or one load of weights, may take."""

CLOSE_LIMIT = 120.0
"""Seconds that the step in progress may take when the engine closes."""

_WHERE = "the vLLM engine"
_EXTENSION = "patchgym.agent.policies.vllm_worker.WorkerExtension"

_Told: TypeAlias = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class _Add:
    name: str
    request: SampleRequest
    tell: _Told


@dataclass(frozen=True, slots=True)
class _Abort:
    name: str


@dataclass(frozen=True, slots=True)
class _Push:
    tensors: Iterable[tuple[str, Any]]
    version: int
    tell: _Told


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Order: TypeAlias = _Add | _Abort | _Push | _Stop


class VllmEngine:
    """Samples turns on a vLLM engine in this process; an async context manager.

    Implements `agent.Policy`. Works under asyncio and trio; nothing blocks the event loop.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        version: int = 0,
        end_ids: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`model` is a Hugging Face folder, its weights to be known as `version`.

        `end_ids` end a turn beside those that the model's configuration names; `options` are
        vLLM's engine arguments, such as `dtype`, `max_model_len`, `kv_cache_memory_bytes`.
        """
        self._model, self._initial = Path(model), version
        self._end_ids = tuple(end_ids)
        self._options = dict(options or {})
        self._names = (f"turn-{count}" for count in itertools.count())
        self._owner: _Owner | None = None
        self._thread: threading.Thread | None = None
        self._soon: Callable[[Callable[[], None]], object] | None = None

    async def __aenter__(self) -> VllmEngine:
        """Start the thread and load the model; PolicyUnavailable when that fails."""
        if self._owner is not None:
            raise PolicyClosed("an engine is opened once; make a new one")
        self._soon = loop_caller()
        owner = self._owner = _Owner(self._make, self._end_ids, self._initial)
        ready, outcomes = self._pending()
        owner.ready = ready
        self._thread = threading.Thread(target=owner.run, name="patchgym-vllm", daemon=True)
        self._thread.start()
        try:
            await self._outcome(outcomes, START_LIMIT)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop after the step in progress; turns still waiting are told."""
        stopped = await self._stop()
        if not stopped and error is None:
            doing = "" if self._owner is None else self._owner.doing
            raise PolicyUnavailable(f"{_WHERE} did not stop in {CLOSE_LIMIT:.0f} s: {doing}")

    @property
    def version(self) -> int:
        """The newest version of the weights; a turn that begins now is sampled with it."""
        return self._initial if self._owner is None else self._owner.version

    @property
    def window(self) -> int | None:
        """The most tokens that a context and its turn may have together."""
        return None if self._owner is None else self._owner.window

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn; see `agent.Policy`. Cancelling aborts it before the next step."""
        owner = self._opened()
        check_request(request, where=_WHERE, window=owner.window)
        if max(request.tokens) >= owner.vocabulary:
            raise PolicyRefused(f"token ids must be in [0, {owner.vocabulary})")
        name = next(self._names)
        told, outcomes = self._pending()
        owner.order(_Add(name, request, told))
        try:
            outcome = await self._outcome(outcomes, STALL_LIMIT)
        finally:
            if not outcomes.values:
                owner.order(_Abort(name))
        assert isinstance(outcome, Completion)
        return outcome

    async def push(
        self, tensors: Iterable[tuple[str, Any]], version: int, *, shapes: Shapes | None = None
    ) -> None:
        """Load `tensors` (Hugging Face's names; arrays that speak dlpack) between two steps.

        Turns in flight go on with the new weights, their keys and values made again, and record
        the version of each token. `shapes` are those of `tensors`, known before they are made;
        ValueError when they aren't the model's, or `version` is not newer: the engine runs on. A
        load that breaks in the middle ends the engine, by WeightPushError.
        """
        owner = self._opened()
        if version <= owner.version:
            raise ValueError(f"version {version} is not newer than {owner.version}")
        if shapes is None:
            tensors = list(tensors)
            shapes = {name: tuple(array.shape) for name, array in tensors}
        wanted = await anyio.to_thread.run_sync(folder_shapes, self._model)
        if wanted and (wrong := difference(wanted, shapes)):
            raise ValueError(f"the new weights don't fit: {wrong}")
        told, outcomes = self._pending()
        owner.order(_Push(tensors, version, told))
        with anyio.CancelScope(shield=True):
            # The thread reads the arrays: they may be freed only once it is done with them.
            await self._outcome(outcomes, STALL_LIMIT)

    def load(self) -> PolicyLoad:
        """Turns running and in line, and the share of key/value blocks in use."""
        return PolicyLoad() if self._owner is None else self._owner.load

    async def check_health(self) -> None:
        """Return while the engine lives; raises PolicyError when not."""
        self._opened().check()

    def _make(self) -> Any:
        """The engine; runs in the owner's thread."""
        # One process, so that arrays can be handed over; read by vLLM when it is imported.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            engines, arguments = import_module("vllm.v1.engine.llm_engine"), import_module("vllm")
        except ImportError as error:
            raise PolicyUnavailable(
                f"vLLM can't be imported ({one_line(error)}): install patchgym[vllm]"
            ) from error
        options = {
            "model": str(self._model),
            "logprobs_mode": "processed_logprobs",
            "worker_extension_cls": _EXTENSION,
            "generation_config": "vllm",
            **self._options,
        }
        return engines.LLMEngine.from_engine_args(arguments.EngineArgs(**options))

    def _opened(self) -> _Owner:
        if self._owner is None:
            raise PolicyClosed(f"{_WHERE} is not open: use `async with`")
        self._owner.check()
        return self._owner

    def _pending(self) -> tuple[_Told, _Outcomes]:
        """A way for the thread to tell, and where it is heard."""
        outcomes = _Outcomes()
        soon = self._soon
        assert soon is not None

        def tell(outcome: object) -> None:
            # A loop that was closed has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                soon(partial(outcomes.put, outcome))

        return tell, outcomes

    async def _outcome(self, outcomes: _Outcomes, limit: float) -> object:
        """Wait for as long as the thread gets anywhere; what it told, raised if an error."""
        owner = self._owner
        assert owner is not None
        while not outcomes.values:
            with anyio.move_on_after(min(limit, 60.0)):
                await outcomes.event.wait()
            stalled = time.monotonic() - owner.since
            if stalled > limit and not outcomes.values:
                raise PolicyUnavailable(
                    f"{_WHERE} has been stuck in {owner.doing!r} for {stalled:.0f} s"
                )
        outcome = outcomes.values[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _stop(self) -> bool:
        owner, thread = self._owner, self._thread
        if owner is None or thread is None:
            return True
        owner.order(_Stop())
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(thread.join, CLOSE_LIMIT))
        return not thread.is_alive()


@dataclass(slots=True)
class _Outcomes:
    """What the thread told, on the event loop's side."""

    values: list[object] = field(default_factory=list)
    event: anyio.Event = field(default_factory=anyio.Event)

    def put(self, outcome: object) -> None:
        self.values.append(outcome)
        self.event.set()


class _Owner:
    """The thread's side: everything here but `order`, `check` and reading runs in the thread."""

    def __init__(self, make: Callable[[], Any], end_ids: tuple[int, ...], version: int) -> None:
        self._make, self._end_ids, self._initial = make, end_ids, version
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._turns: dict[str, _Add] = {}
        self._ended: PolicyError | None = None
        self._ending = threading.Lock()
        self._engine: Any = None
        self._push_tell: _Told | None = None
        self.ready: _Told = lambda outcome: None
        self.version = version
        self.window: int | None = None
        self.vocabulary = 0
        self.load = PolicyLoad()
        self.doing, self.since = "starting", time.monotonic()

    def order(self, order: _Order) -> None:
        """Leave an order; from any thread. After the end, whoever waits is told at once."""
        with self._ending:
            if self._ended is None:
                self._orders.put(order)
                return
        if isinstance(order, _Add | _Push):
            order.tell(self._ended)

    def check(self) -> None:
        """Raise why the thread ended, if it did."""
        if self._ended is not None:
            raise self._ended

    def run(self) -> None:
        """The thread's body: never raises; a failure is told to everybody who waits."""
        try:
            self._start()
            self.ready(None)
            self._serve()
            self._end(PolicyClosed(f"{_WHERE} was closed"))
        except PolicyError as error:
            self._end(error)
        except BaseException as error:
            kind = type(error).__name__
            self._end(
                PolicyUnavailable(f"{_WHERE} failed in {self.doing!r}: {kind}: {one_line(error)}")
            )

    def _start(self) -> None:
        self._now("loading the model")
        self._engine = self._make()
        self._engine.engine_core.set_weight_version(str(self._initial))
        configuration = self._engine.model_config
        self.window = int(configuration.max_model_len)
        self.vocabulary = int(configuration.get_vocab_size())

    def _serve(self) -> None:
        engine = self._engine
        while True:
            if not engine.has_unfinished_requests():
                self._now("waiting for work")
                self._note_load()
                if not self._obey(self._take(wait=True)):
                    return
            while (order := self._take(wait=False)) is not None:
                if not self._obey(order):
                    return
            if engine.has_unfinished_requests():
                self._now("sampling")
                for output in engine.step():
                    self._deliver(output)
                self._note_load()

    def _take(self, *, wait: bool) -> _Order | None:
        """The next order. While idle, time passes without counting as stuck."""
        while True:
            try:
                return self._orders.get(block=wait, timeout=STALL_LIMIT / 100 if wait else None)
            except queue.Empty:
                if not wait:
                    return None
                self._now("waiting for work")

    def _obey(self, order: _Order | None) -> bool:
        """Carry an order out; False to stop."""
        if isinstance(order, _Add):
            self._add(order)
        elif isinstance(order, _Abort):
            if self._turns.pop(order.name, None) is not None:
                self._engine.abort_request([order.name])
        elif isinstance(order, _Push):
            self._load(order)
        return not isinstance(order, _Stop)

    def _add(self, order: _Add) -> None:
        parameters: Any = import_module("vllm.sampling_params")
        fields = sampling_fields(order.request, self._end_ids)
        kind = parameters.RequestOutputKind.FINAL_ONLY
        try:
            self._engine.add_request(
                order.name,
                {"prompt_token_ids": list(order.request.tokens)},
                parameters.SamplingParams(output_kind=kind, **fields),
            )
        except (ValueError, TypeError) as error:
            order.tell(PolicyRefused(f"{_WHERE}: {one_line(error)}"))
            return
        self._turns[order.name] = order

    def _deliver(self, output: Any) -> None:
        if not output.finished or (turn := self._turns.pop(output.request_id, None)) is None:
            return
        try:
            turn.tell(self._completion(turn.request, output.outputs[0]))
        except PolicyError as error:
            turn.tell(error)

    def _completion(self, request: SampleRequest, sampled: Any) -> Completion:
        tokens = [int(token) for token in sampled.token_ids]
        logprobs = [
            float(entry[token].logprob)
            for token, entry in zip(tokens, sampled.logprobs or (), strict=False)
        ]
        said = [(span.version, span.start, span.end) for span in sampled.weight_versions or ()]
        return completion_of(
            request,
            where=_WHERE,
            tokens=tokens,
            logprobs=logprobs,
            finish=finish_of(sampled.finish_reason, sampled.stop_reason, _WHERE),
            spans=spans_of(said, len(tokens), initial=self._initial, where=_WHERE),
        )

    def _load(self, order: _Push) -> None:
        """New weights between two steps; what runs is recomputed, so that no key of old is left."""
        self._now(f"loading weights of version {order.version}")
        self._push_tell = order.tell
        engine = self._engine
        try:
            engine.collective_rpc("patchgym_load", args=(order.tensors,))
            engine.engine_core.set_weight_version(str(order.version))
            if not engine.reset_prefix_cache(reset_running_requests=True):
                raise RuntimeError("the prefix cache could not be reset")
        except Exception as error:
            raise WeightPushError(
                f"{_WHERE} broke on weights of version {order.version}:"
                f" {type(error).__name__}: {one_line(error)}"
            ) from error
        self.version = order.version
        self._push_tell = None
        order.tell(None)

    def _note_load(self) -> None:
        scheduler = self._engine.engine_core.engine_core.scheduler
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        self.load = PolicyLoad(
            running=running,
            waiting=waiting,
            cache_use=float(scheduler.kv_cache_manager.usage),
            preemptions=self.load.preemptions,
        )

    def _now(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()

    def _end(self, error: PolicyError) -> None:
        """No order is taken any more; everybody who waits is told."""
        with self._ending:
            self._ended = error
        told = [turn.tell for turn in self._turns.values()]
        self._turns.clear()
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                break
            if isinstance(order, _Add | _Push):
                told.append(order.tell)
        if self._push_tell is not None:
            told.append(self._push_tell)
        for tell in (self.ready, *told):
            tell(error)
        self._shut_down()

    def _shut_down(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            # Best effort: the engine may be the very thing that broke.
            with contextlib.suppress(Exception):
                engine.engine_core.shutdown()
