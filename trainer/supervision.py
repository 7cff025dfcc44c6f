"""How a run ended, in one line that names the stage, the kind and the culprit; and a last deadline.

    signal ----------------> stopped
    a stage raises --------> failed     by whom: the innermost frame that belongs to a stage
    nothing moves ---------> failed     by `watch`, which names what has not come back
    the last step ---------> finished

Errors come out of task groups as groups of errors, nested as deep as the tasks were. `end_of` takes
the one that began it: a fault of the program before an expected error, else the first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Literal

import anyio

from patchgym.agent.policies.errors import one_line as flat

from .errors import RunStopped, UserError

How = Literal["finished", "stopped", "failed"]

STAGES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("patchgym.trainer.resources", "open_domain"): "opening the environment",
        ("patchgym.trainer.resources", "open_resources"): "opening",
        ("patchgym.trainer.resources", "Resources.publish"): "publication of weights",
        ("patchgym.trainer.resources", "Resources.save"): "checkpoint",
        ("patchgym.trainer.resume", "restore_groups"): "restoring groups",
        ("patchgym.trainer.held_out", "HeldOut.measure"): "held-out evaluation",
        ("patchgym.trainer.held_out", "HeldOut.beside"): "held-out evaluation",
        ("patchgym.trainer.training", "Training._step"): "learner",
        ("patchgym.trainer.group_flow", "GroupFlow.take"): "learner, waiting for groups",
        ("patchgym.trainer.training", "Training._update"): "learner, in an update",
        ("patchgym.trainer.group_flow", "GroupFlow.deliver"): "groups",
        ("patchgym.trainer.group_flow", "GroupFlow.stragglers"): "stragglers",
        ("patchgym.trainer.pipeline", "Pipeline._slot"): "rollouts",
        ("patchgym.trainer.pipeline", "Pipeline._admit"): "admission",
        ("patchgym.rewards.workers", "run_workers.<locals>.work"): "reward workers",
        ("patchgym.trainer.recorder", "Recorder.rollout"): "recording a rollout",
        ("patchgym.trainer.ledger.record", "Ledger.flush"): "ledger",
        ("patchgym.trainer.watchdog", "Watchdog.run"): "watchdog",
        ("patchgym.trainer.supervision", "watch"): "supervision",
    }
)
"""Stages by module and function: the innermost one on an error's way is where it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Why a run ended."""

    how: How
    stage: str = ""
    """Where it began; empty for a run that finished."""
    kind: str = ""
    """The error's type, or `signal`."""
    words: str = ""
    """What happened, in one line."""
    more: int = 0
    """Other errors that came with it."""
    step: int = 0
    """Updates that were done by then."""
    time: float = 0.0
    """Seconds since the epoch."""

    def line(self) -> str:
        """All of it, for people."""
        if self.how == "finished":
            return "finished"
        more = f" (and {self.more} more)" if self.more else ""
        return f"{self.how} after step {self.step}: {self.stage}: {self.kind}: {self.words}{more}"


class Stuck(RunStopped):
    """One piece of work did not come back; the message names it."""


def end_of(error: BaseException | None, *, step: int, stopped: str = "", stage: str = "") -> End:
    """The end that `error` makes. `stopped` says what a signal found under way, empty without one;
    `stage` is where the run was, for an error that no stage claims."""
    found = list(_leaves(error)) if error is not None else []
    if not found:
        if stopped or error is not None:
            kind, words = ("signal", stopped) if stopped else ("Cancelled", "it was cancelled")
            return End(
                how="stopped", stage=stage, kind=kind, words=words, step=step, time=time.time()
            )
        return End(how="finished", step=step, time=time.time())
    first = next((each for each in found if not _expected(each)), found[0])
    return End(
        how="failed",
        stage=stage_of(first) or stage,
        kind=type(first).__name__,
        words=one_line(first),
        more=len(found) - 1,
        step=step,
        time=time.time(),
    )


def stage_of(error: BaseException) -> str:
    """The stage that `error` was raised in; empty when no frame on its way belongs to one."""
    found = ""
    for module, function in _frames(error.__traceback__):
        found = STAGES.get((module, function), found)
    return found


def one_line(error: BaseException, most: int = 500) -> str:
    """What an error says, without line ends, cut to `most` characters."""
    return flat(str(error).strip() or type(error).__name__, most)


async def watch(
    moves: Callable[[], object],
    what: Callable[[], str],
    limit: float,
    stacks: Callable[[], str],
    tell: Callable[[str, str], None],
) -> None:
    """Raise Stuck, naming `what()`, once `moves()` has been the same for `limit` seconds.

    Before, `tell` gets those words and the `stacks()` of all threads. None is never stuck.
    """
    seen, since = moves(), time.monotonic()
    while True:
        await anyio.sleep(min(5.0, limit / 4))
        now = moves()
        if now is None or now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since >= limit:
            words = f"nothing has come back for {limit:.0f} s: {what()}"
            tell(words, stacks())
            raise Stuck(words)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of groups, in order, without cancellations."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    elif not isinstance(error, asyncio.CancelledError):
        yield error


def _expected(error: BaseException) -> bool:
    from patchgym.sandbox import PatchgymError

    return isinstance(error, UserError | RunStopped | PatchgymError)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield trace.tb_frame.f_globals.get("__name__", ""), code.co_qualname
        trace = trace.tb_next
