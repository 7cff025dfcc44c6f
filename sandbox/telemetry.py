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
from opentelemetry.util.types import AttributeValue

from .current_span import CurrentSpan, TimedSpan
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


def lease_wait(image: str, borrower: str) -> CurrentSpan:
    """A caller waits for a sandbox."""
    about = {"container.image.name": image, "patchgym.lease.borrower": borrower}
    return _timed("lease wait", _lease_wait, about)


@contextmanager
def lease_held(name: str, image: str, borrower: str) -> Iterator[None]:
    """A lease, from when it was given until it ends.

    It is not the current span: a lease is taken in one tool call and lasts over others.
    """
    started = time.perf_counter()
    about = {
        "container.name": name,
        "container.image.name": image,
        "patchgym.lease.borrower": borrower,
    }
    span = _tracer.start_span("lease", attributes=about)
    try:
        yield
    finally:
        span.end()
        _lease_duration.record(time.perf_counter() - started)


class _Work(TimedSpan):
    """Work in or for a sandbox."""

    __slots__ = ()

    def failure(self, error: Exception) -> str:
        """Its type; failures of the infrastructure are counted."""
        if isinstance(error, SandboxError):
            failed(error)
        return super().failure(error)


class CommandSpan(_Work):
    """A command under way."""

    __slots__ = ()

    def ended(self, result: CommandResult) -> None:
        """What came of it."""
        span = self.span
        if not span.is_recording():
            return
        about: dict[str, AttributeValue] = {"patchgym.command.cpu_seconds": result.cpu_seconds}
        if result.exit_code is not None:
            about["process.exit.code"] = result.exit_code
        if result.limits_hit:
            about["patchgym.command.limits_hit"] = list(result.limits_hit)
        span.set_attributes(about)


def command(name: str, image: str) -> CommandSpan:
    """A command in the sandbox `name`."""
    about = {"container.name": name, "container.image.name": image}
    return CommandSpan(_tracer.start_span("command", attributes=about), _command, {})


def checkout(name: str, commit: str) -> CurrentSpan:
    """A commit on its way into the sandbox `name`."""
    about = {"container.name": name, "vcs.ref.head.revision": commit}
    return _timed("checkout", _checkout, about)


def prepare(slot: int, image: str) -> CurrentSpan:
    """A slot's next sandbox is made, on behalf of nobody in particular."""
    about: dict[str, str | int] = {"container.image.name": image, "patchgym.slot": slot}
    return _timed("prepare sandbox", _prepare, about, Context())


def reset(name: str) -> CurrentSpan:
    """The sandbox `name` is put back to what it was, for a rerun."""
    return _timed("reset", _reset, {"container.name": name})


def test_run(asked: int, reruns: int) -> CurrentSpan:
    """A run of tests with its reruns."""
    about = {"patchgym.tests": asked, "patchgym.tests.reruns": reruns}
    return CurrentSpan(_tracer.start_span("run tests", attributes=about))


def tests_ended(outcomes: Iterable[str]) -> None:
    """What became of the tests of one run, its reruns included."""
    for outcome, count in Counter(outcomes).items():
        _outcomes.add(count, {"patchgym.test.outcome": outcome})


def _timed(
    name: str,
    duration: Histogram,
    about: Mapping[str, str | int],
    parent: Context | None = None,
) -> CurrentSpan:
    """A span around the block, and its seconds in `duration`, failures by type."""
    return _Work(_tracer.start_span(name, parent, attributes=about), duration, {})
