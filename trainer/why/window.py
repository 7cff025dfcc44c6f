"""The steps that a question is about, and where the time of each went."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.trainer.ledger import LedgerReader

Seconds = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The last steps of a run."""

    first: int
    """The number of the first of them, counted from 0."""
    steps: Sequence[Mapping[str, Any]]
    """Their metrics, in order."""
    begin: float | None
    """Seconds since the epoch at which the step before them ended; None where that is not known."""

    @property
    def accounts(self) -> list[Mapping[str, Any]]:
        """What each step says of its time; of those that say it."""
        return [step["idle"] for step in self.steps if step.get("idle")]


def last_steps(reader: LedgerReader, most: int) -> Window:
    """The last `most` steps on record; of more than three, the very first is left out: it waits for
    the first rollouts of all, and compiles."""
    (count,) = reader.rows("SELECT COUNT(*) FROM steps")[0]
    most = min(most, count - 1) if count > 3 else most
    rows = reader.rows("SELECT step, finished FROM steps ORDER BY step DESC LIMIT ?", (most + 1,))
    first = rows[min(most, len(rows)) - 1]["step"] if rows else 0
    begin = rows[most]["finished"] if len(rows) > most else None
    sql = "SELECT step, metrics FROM steps WHERE step >= ? ORDER BY step"
    steps = [
        {**json.loads(row["metrics"]), "step": row["step"]} for row in reader.rows(sql, (first,))
    ]
    return Window(first=first, steps=steps, begin=begin)


def learner_seconds(window: Window) -> Seconds:
    """The learner's seconds by kind of work and reason of wait."""
    if window.accounts:
        return total(account["learner"] for account in window.accounts)
    return total(_older(window.steps))


def total(parts: Iterable[Mapping[str, float]]) -> Seconds:
    """Sums by name."""
    found: Seconds = {}
    for part in parts:
        for name, seconds in part.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


def _older(steps: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, float]]:
    """Steps of a version that kept sums since the start of its process: their differences. What
    was no wait and no update is `other work`."""
    before: Mapping[str, Any] = {"clock_seconds": 0.0, "waited_seconds": {}}
    for step in steps:
        if "clock_seconds" not in step:
            continue
        if step["clock_seconds"] < before["clock_seconds"]:  # it was resumed
            before = {"clock_seconds": 0.0, "waited_seconds": {}}
        waited = {
            why: seconds - before["waited_seconds"].get(why, 0.0)
            for why, seconds in step["waited_seconds"].items()
        }
        whole = step["clock_seconds"] - before["clock_seconds"]
        names = ("pack_seconds", "gradient_seconds", "update_seconds")
        training = min(sum(step.get(name) or 0.0 for name in names), whole - sum(waited.values()))
        other = whole - sum(waited.values()) - training
        yield {**waited, "training": training, "other work": max(0.0, other)}
        before = step
