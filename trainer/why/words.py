"""What was found, said: lines for people, and one document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from patchgym.trainer.idle import Spread

from .advice import Advice
from .facts import TRAINING, WORK, Facts
from .spans import span

_SHOWN = 0.005
"""Shares below half a percent are left out of the lines; the document has them."""
_ROWS = 5
"""Rows of each table."""


def lines_of(facts: Facts, advice: Sequence[Advice]) -> list[str]:
    """For people: what waits for what, by how much, and what would help."""
    lines = [_head(facts)]
    if facts.ended:
        lines.append(f"it ended: {facts.ended}")
    if facts.waits_for or facts.doing:
        lines.append(f"now: {facts.waits_for or facts.doing}")
    if not facts.learner:
        lines.append("no step is over yet: there is nothing to take apart")
        return [*lines, *_tables(facts)]
    lines += ["", *_learner(facts), "", *_sampler(facts), *_path(facts), *_tables(facts)]
    lines += ["", "what would help:" if advice else "nothing stands out: no advice"]
    return [*lines, *(f"  - {each.words}" for each in advice)]


def record_of(facts: Facts, advice: Sequence[Advice]) -> dict[str, Any]:
    """For programs."""
    latencies = facts.latencies
    return {
        "run": facts.run,
        "state": facts.state,
        "ended": facts.ended,
        "now": {"doing": facts.doing, "waits_for": facts.waits_for},
        "steps": {
            "first": facts.window.first,
            "count": len(facts.window.steps),
            "done": facts.done,
            "planned": facts.planned,
        },
        "seconds": facts.seconds,
        "learner": {
            "idle_share": facts.idle_share,
            "shares": facts.learner,
            "behind": facts.behind,
        },
        "sampler": {"shares": facts.sampler, "turns_at_once": facts.sampling},
        "path": [asdict(part) for part in facts.parts],
        "latencies": {
            "stages": _records(latencies.stages.items()),
            "tools": [
                {"tool": tool, "image": image, **asdict(spread)}
                for (tool, image), spread in latencies.tools.items()
            ],
            "tasks": _records(latencies.tasks.items()),
            "images": _records(latencies.images.items()),
            "components": _records(latencies.components.items()),
        },
        "advice": [asdict(each) for each in advice],
    }


def _head(facts: Facts) -> str:
    of = f" of {facts.planned}" if facts.planned else ""
    words = f"{facts.run}: {facts.state}, {facts.done}{of} steps"
    count = len(facts.window.steps)
    if not count:
        return words
    return f"{words}; the last {count} took {span(facts.seconds)}, {_each(facts)} each"


def _each(facts: Facts) -> str:
    return span(facts.seconds / len(facts.window.steps))


def _learner(facts: Facts) -> Iterator[str]:
    waits = sum(facts.waiting.values())
    yield f"learner idle {facts.idle_share:.0%}: {waits:.0%} waiting for groups" + "".join(
        f", {share:.0%} {kind}"
        for kind, share in facts.learner.items()
        if kind in WORK and kind != TRAINING and share >= _SHOWN
    )
    for why, share in facts.waiting.items():
        if share >= _SHOWN:
            yield f"  {share:4.0%} {why}{_spread_words(facts.latencies.stages.get(why))}"


def _spread_words(spread: Spread | None) -> str:
    if spread is None or not spread.count:
        return ""
    return f"  (p50 {span(spread.p50)}, p95 {span(spread.p95)}, p99 {span(spread.p99)})"


def _sampler(facts: Facts) -> Iterator[str]:
    if not facts.sampler:
        yield "sampler: this run's version kept no account of it"
        return
    waits = facts.sampler_waiting
    yield (
        f"sampler idle {sum(waits.values()):.0%}; {facts.sampling:.1f} turns at once in the mean"
    )
    for why, share in waits.items():
        if share >= _SHOWN:
            yield f"  {share:4.0%} {why}"


def _path(facts: Facts) -> Iterator[str]:
    whole = sum(part.seconds for part in facts.parts)
    shown = [part for part in facts.parts[:_ROWS] if part.seconds >= 2 * _SHOWN * whole]
    if not shown:
        return
    yield ""
    yield "the way to these batches, longest stretches together:"
    for part in shown:
        image = f" on {part.image}" if part.image else ""
        most = f"; most: {part.rollout} of {part.task}" if part.rollout else ""
        yield f"  {span(part.seconds):>8} {part.stage}{image}{most}"


def _tables(facts: Facts) -> Iterator[str]:
    latencies = facts.latencies
    tools = {
        f"{tool}{f' on {at}' if at else ''}": each for (tool, at), each in latencies.tools.items()
    }
    yield from _table("stays by stage", latencies.stages)
    yield from _table("turns by tool", tools)
    yield from _table("rollouts by task", latencies.tasks)
    yield from _table("rollouts by image", latencies.images)
    yield from _table("reward by component", latencies.components)


def _table(title: str, spreads: Mapping[str, Spread]) -> Iterator[str]:
    if not spreads:
        return
    more = f", the slowest {_ROWS} of {len(spreads)}" if len(spreads) > _ROWS else ""
    yield ""
    yield f"{title + more:44} {'count':>7} {'p50':>8} {'p95':>8} {'p99':>8}  seconds"
    for name, each in list(spreads.items())[:_ROWS]:
        numbers = f"{each.count:7} {each.p50:8.2f} {each.p95:8.2f} {each.p99:8.2f}"
        yield f"  {name[:42]:42} {numbers}"


def _records(items: Iterable[tuple[str, Spread]]) -> list[dict[str, Any]]:
    return [{"name": name, **asdict(spread)} for name, spread in items]
