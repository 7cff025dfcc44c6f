"""What would help, as far as the numbers say so: each piece names what was measured, and the keys.

Nothing is advised about less than a twentieth of the learner's time. A key's new value is a next
try, not a promise: measure again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .facts import Facts
from .spans import span

WORTH = 0.05
"""Share of the learner's time from which on something is worth a word."""
_TAIL = 3.0
"""p99 over p50 from which on a few slow ones are the matter, not all of them."""
_LIMITS = {"run_tests": "tests_timeout", "tests": "tests_timeout", "bash": "command_timeout"}
"""Keys of `[sandbox]` that end a tool's call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to do."""

    share: float
    """Of the learner's time: what it is about, and the most that it could bring."""
    words: str
    keys: tuple[str, ...]
    """Settings that it is about."""


def advise(facts: Facts) -> list[Advice]:
    """The most rewarding first; empty when nothing stands out, or nothing is known."""
    found = [each for rule in _RULES for each in rule(facts) if each.share >= WORTH]
    return sorted(found, key=lambda each: -each.share)


def _slots(facts: Facts) -> Iterator[Advice]:
    """The awaited rollout had no slot: there could be more."""
    share, group = facts.behind.get("slot", 0.0), facts.settings["group"]
    now = facts.settings["rollout"]["in_flight"]
    useful = group["per_step"] * group["size"] * (1 + group["max_staleness"])
    more = min(useful, math.ceil(now * 1.5))
    if more <= now:
        return
    yield Advice(
        share=share,
        words=f"in {share:.0%} of the time the awaited rollout had no slot yet: raise "
        f"rollout.in_flight from {now} to {more}" + _memory(facts, more),
        keys=("rollout.in_flight",),
    )


def _memory(facts: Facts, slots: int) -> str:
    have = facts.settings["sandbox"]["slots"]
    return f" (there are {have} sandboxes: sandbox.slots)" if have < slots else ""


def _scorers(facts: Facts) -> Iterator[Advice]:
    """It was in line for a scorer."""
    share = facts.behind.get("scorer", 0.0) + facts.waiting.get("scoring wait", 0.0)
    now = facts.settings["scoring"]["workers"]
    yield Advice(
        share=share,
        words=f"in {share:.0%} of the time the awaited rollout was in line for a scorer: raise "
        f"scoring.workers from {now} to {2 * now}",
        keys=("scoring.workers",),
    )


def _leases(facts: Facts) -> Iterator[Advice]:
    """It had no sandbox."""
    share, wants = facts.waiting.get("lease wait", 0.0), facts.settings["rollout"]["in_flight"]
    now = facts.settings["sandbox"]["slots"]
    if now < wants:
        spread = facts.latencies.stages.get("lease wait")
        took = f" (p99 {span(spread.p99)})" if spread else ""
        yield Advice(
            share=share,
            words=f"{share:.0%} of the time goes into waits for a sandbox{took}: raise "
            f"sandbox.slots from {now} to {min(wants, 2 * now)}",
            keys=("sandbox.slots",),
        )


def _tools(facts: Facts) -> Iterator[Advice]:
    """It was in a tool."""
    for stage, share in facts.waiting.items():
        tool = stage.removeprefix("tool ")
        spread = facts.latencies.stages.get(stage)
        if spread is None or not (stage.startswith("tool ") or stage in _LIMITS):
            continue
        key = _LIMITS.get(tool)
        limit = facts.settings["sandbox"][key] if key else None
        tail = spread.p99 > _TAIL * spread.p50
        few = " (a few slow calls are the matter)" if tail else ""
        words = f"{share:.0%} of the time is spent in {stage}, p50 {span(spread.p50)}, "
        words += f"p99 {span(spread.p99)}{few}"
        keys: tuple[str, ...] = ()
        if key and limit is not None and spread.p99 > 0.9 * limit:
            keys = (f"sandbox.{key}",)
            words += f": calls run into sandbox.{key} = {limit:g}; cut it, or mend what hangs"
        elif key and limit is not None and tail and limit > 2 * spread.p99:
            keys = (f"sandbox.{key}",)
            words += f": sandbox.{key} = {limit:g} could be {math.ceil(1.5 * spread.p99)}"
        yield Advice(share=share, words=words, keys=keys)


def _stragglers(facts: Facts) -> Iterator[Advice]:
    """Groups wait for one slow member."""
    lag, group = facts.latencies.laggards, facts.settings["group"]
    if group["quorum"] or group["size"] < 4 or lag.groups < 5 or lag.gain < 0.5:
        return
    quorum = group["size"] - max(1, group["size"] // 4)
    yield Advice(
        share=lag.gain * sum(facts.waiting.values()),
        words=f"the last rollout of a group takes {span(lag.last)}, the middle one "
        f"{span(lag.middle)}: with group.quorum = {quorum} and group.straggler_seconds = "
        f"{math.ceil(2 * lag.middle)} groups go on without their last",
        keys=("group.quorum", "group.straggler_seconds"),
    )


def _in_turn(facts: Facts) -> Iterator[Advice]:
    """Sampler and learner wait for each other."""
    waits, trains = sum(facts.waiting.values()), facts.sampler.get("the learner trains", 0.0)
    if facts.settings["group"]["max_staleness"] == 0 and trains >= WORTH:
        yield Advice(
            share=min(waits, trains),
            words=f"they take turns: the sampler waits {trains:.0%} of the time for the learner, "
            f"the learner {waits:.0%} for groups: group.max_staleness = 1 lets them overlap",
            keys=("group.max_staleness",),
        )


def _sampler(facts: Facts) -> Iterator[Advice]:
    """It was being sampled."""
    share, turn = facts.waiting.get("sampling", 0.0), facts.latencies.stages.get("sampling")
    if turn is None:
        return
    words = f"{share:.0%} of the time is spent sampling: {facts.sampling:.1f} turns at once in the "
    words += f"mean, a turn takes p50 {span(turn.p50)}, p99 {span(turn.p99)}"
    cut = facts.latencies.cut_turns
    keys: tuple[str, ...] = ()
    if cut >= 0.3:
        keys = ("rollout.max_new_tokens",)
        now = facts.settings["rollout"]["max_new_tokens"]
        words += f"; {cut:.0%} of the turns run to rollout.max_new_tokens = {now}"
    yield Advice(share=share, words=words, keys=keys)


def _scoring(facts: Facts) -> Iterator[Advice]:
    """It was being scored."""
    share = facts.waiting.get("scoring", 0.0)
    slowest = next(iter(facts.latencies.components.items()), None)
    part = f", {slowest[0]} p95 {span(slowest[1].p95)}" if slowest else ""
    yield Advice(share=share, words=f"{share:.0%} of the time is spent scoring{part}", keys=())


def _publishing(facts: Facts) -> Iterator[Advice]:
    """Weights were under way."""
    share, steps = facts.learner.get("publishing", 0.0), max(1, len(facts.window.steps))
    each = share * facts.seconds / steps
    yield Advice(
        share=share,
        words=f"{share:.0%} of the time goes into publishing weights, {span(each)} a step: more "
        f"groups a step (group.per_step = {facts.settings['group']['per_step']}) make it rarer",
        keys=("group.per_step",),
    )


def _writes(facts: Facts) -> Iterator[Advice]:
    """The machine was in the way."""
    share = facts.waiting.get("recording", 0.0) + facts.waiting.get("handing over", 0.0)
    blocked = [step.get("loop_blocked") or 0.0 for step in facts.window.steps]
    yield Advice(
        share=share,
        words=f"{share:.0%} of the time goes into recording rollouts and handing them over: the "
        f"disk is slow, or the event loop is held up ({max(blocked, default=0.0):.0%} of it)",
        keys=(),
    )


_RULES: tuple[Callable[[Facts], Iterator[Advice]], ...] = (
    _slots,
    _scorers,
    _leases,
    _tools,
    _stragglers,
    _in_turn,
    _sampler,
    _scoring,
    _publishing,
    _writes,
)
