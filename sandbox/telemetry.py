"""What this layer tells OpenTelemetry, under the name `patchgym.sandbox`: see docs/telemetry.md.

Only the API is used. Where no SDK is set up, all of this comes to nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.trace import Span

from .errors import SandboxError

if TYPE_CHECKING:
    from .pool_core import PoolStatistics
    from .result import CommandResult

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_tracer = trace.get_tracer("patchgym.sandbox")
_meter = metrics.get_meter("patchgym.sandbox")


def _seconds(name: str, description: str) -> Histogram:
    return _meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS
    )


_lease_wait = _seconds("patchgym.sandbox.lease.wait", "Wait for a sandbox")
_lease_duration = _seconds("patchgym.sandbox.lease.duration", "Time that a lease was held")
_command = _seconds("patchgym.sandbox.command.duration", "Commands in sandboxes")
_checkout = _seconds("patchgym.sandbox.checkout.duration", "Putting a commit into a sandbox")
_prepare = _seconds("patchgym.sandbox.prepare.duration", "Making a sandbox ready for a lease")
_reset = _seconds("patchgym.sandbox.reset.duration", "Putting a sandbox back for a rerun of tests")
_failures = _meter.create_counter(
    "patchgym.sandbox.failures", "{failure}", "Failures of sandboxes, by what failed"
)
_outcomes = _meter.create_counter(
    "patchgym.test.outcomes", "{test}", "Tests by what became of them; the flake rate rests on it"
)


class Observed(Protocol):
    """A pool, as far as it is looked at."""

    def statistics(self) -> PoolStatistics:
        """A snapshot."""
        ...


_pools: WeakSet[Observed] = WeakSet()


def _slots(options: CallbackOptions) -> Iterable[Observation]:
    states: Counter[str] = Counter()
    for pool in list(_pools):
        now = pool.statistics()
        for state in ("ready", "leased", "making", "broken"):
            states[state] += getattr(now, state)
    return [Observation(n, {"patchgym.slot.state": state}) for state, n in states.items()]


def _waiting(options: CallbackOptions) -> Iterable[Observation]:
    return [Observation(sum(pool.statistics().waiting for pool in list(_pools)))]


_meter.create_observable_gauge(
    "patchgym.sandbox.slots", [_slots], "{slot}", "Slots of all pools, by state"
)
_meter.create_observable_gauge(
    "patchgym.sandbox.lease.waiting", [_waiting], "{caller}", "Callers that wait for a sandbox"
)


def watch(pool: Observed) -> None:
    """Count the slots of `pool` from now on."""
    _pools.add(pool)


def forget(pool: Observed) -> None:
    """No longer count its slots."""
    _pools.discard(pool)


def failed(error: BaseException) -> None:
    """Count a failure of the infrastructure."""
    _failures.add(1, {"error.type": type(error).__qualname__})


@contextmanager
def lease_wait(image: str, borrower: str) -> Iterator[None]:
    """A caller waits for a sandbox."""
    with _timed("lease wait", _lease_wait, {"container.image.name": image}) as span:
        span.set_attribute("patchgym.lease.borrower", borrower)
        yield


@contextmanager
def lease_held(name: str, image: str, borrower: str) -> Iterator[None]:
    """A lease, from when it was given until it ends.

    It is not the current span: a lease is taken in one tool call and lasts over others.
    """
    started = time.perf_counter()
    span = _tracer.start_span("lease")
    if span.is_recording():
        span.set_attributes(
            {
                "container.name": name,
                "container.image.name": image,
                "patchgym.lease.borrower": borrower,
            }
        )
    try:
        yield
    finally:
        span.end()
        _lease_duration.record(time.perf_counter() - started)


class CommandSpan:
    """A command under way."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, result: CommandResult) -> None:
        """What came of it."""
        span = self._span
        if not span.is_recording():
            return
        if result.exit_code is not None:
            span.set_attribute("process.exit.code", result.exit_code)
        span.set_attribute("patchgym.command.cpu_seconds", result.cpu_seconds)
        if result.limits_hit:
            span.set_attribute("patchgym.command.limits_hit", list(result.limits_hit))


@contextmanager
def command(name: str, image: str) -> Iterator[CommandSpan]:
    """A command in the sandbox `name`."""
    about = {"container.name": name, "container.image.name": image}
    with _timed("command", _command, about) as span:
        yield CommandSpan(span)


@contextmanager
def checkout(name: str, commit: str) -> Iterator[None]:
    """A commit on its way into the sandbox `name`."""
    about = {"container.name": name, "vcs.ref.head.revision": commit}
    with _timed("checkout", _checkout, about):
        yield


@contextmanager
def prepare(slot: int, image: str) -> Iterator[None]:
    """A slot's next sandbox is made, on behalf of nobody in particular."""
    about: dict[str, str | int] = {"container.image.name": image, "patchgym.slot": slot}
    with _timed("prepare sandbox", _prepare, about, Context()):
        yield


@contextmanager
def reset(name: str) -> Iterator[None]:
    """The sandbox `name` is put back to what it was, for a rerun."""
    with _timed("reset", _reset, {"container.name": name}):
        yield


@contextmanager
def test_run(asked: int, reruns: int) -> Iterator[None]:
    """A run of tests with its reruns."""
    with _tracer.start_as_current_span("run tests") as span:
        span.set_attribute("patchgym.tests", asked)
        span.set_attribute("patchgym.tests.reruns", reruns)
        yield


def tests_ended(outcomes: Iterable[str]) -> None:
    """What became of the tests of one run, its reruns included."""
    for outcome, count in Counter(outcomes).items():
        _outcomes.add(count, {"patchgym.test.outcome": outcome})


@contextmanager
def _timed(
    name: str,
    duration: Histogram,
    about: Mapping[str, str | int],
    parent: Context | None = None,
) -> Iterator[Span]:
    """A span around the block, and its seconds in `duration`, failures by type."""
    started = time.perf_counter()
    kind: dict[str, str] = {}
    with _tracer.start_as_current_span(name, parent) as span:
        if span.is_recording():
            span.set_attributes(about)
        try:
            yield span
        except Exception as error:
            kind["error.type"] = type(error).__qualname__
            span.set_attribute("error.type", kind["error.type"])
            if isinstance(error, SandboxError):
                failed(error)
            raise
        finally:
            duration.record(time.perf_counter() - started, kind)
