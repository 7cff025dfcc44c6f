"""What was measured, as numbers, a table and a page. Standard library only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Named(Protocol):
    """A contestant, as `sides.Side`."""

    @property
    def name(self) -> str: ...
    @property
    def note(self) -> str: ...


class Measured(Protocol):
    """What it did, as `sides.Run`."""

    @property
    def side(self) -> Named: ...
    @property
    def ready(self) -> Mapping[str, Any]: ...
    @property
    def steps(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One contestant's row of the table."""

    name: str
    note: str
    trained_tokens: int
    """Masked tokens of a step, a shared one once a sequence."""
    computed_tokens: int
    """Tokens that go through the model in a step, padding included."""
    seconds: float
    """Median of the timed steps."""
    cpu_seconds: float
    """Processor time of a step, all threads, median."""
    peak_mib: float
    """Largest of the compiled programs of a step, with what is alive beside them."""
    resident_mib: float
    """Most memory that the process ever held, the program's compilation included."""
    losses: tuple[float, ...]
    """Of each timed step."""

    @property
    def tokens_per_second(self) -> float:
        """Trained tokens a second."""
        return self.trained_tokens / self.seconds


def line_of(run: Measured) -> Line:
    """Medians of `run`, which has at least one step."""
    return Line(
        name=run.side.name,
        note=run.side.note,
        trained_tokens=run.ready["trained_tokens"],
        computed_tokens=run.ready["computed_tokens"],
        seconds=statistics.median(step["seconds"] for step in run.steps),
        cpu_seconds=statistics.median(step["cpu_seconds"] for step in run.steps),
        peak_mib=run.ready["peak_bytes"] / 2**20,
        resident_mib=max(step["resident_bytes"] for step in run.steps) / 2**20,
        losses=tuple(step["loss"] for step in run.steps),
    )


def speedup(ours: Measured, other: Measured) -> dict[str, Any]:
    """How many times faster `ours` is, round by round: both sides made step n one after the other.

    `ratio` is the median of the rounds' ratios, `spread` their least and greatest, `cpu` the median
    of the ratios of processor time, which a busy machine hardly changes. Raises ValueError when the
    two did not train on the same number of tokens.
    """
    trained = ours.ready["trained_tokens"], other.ready["trained_tokens"]
    if trained[0] != trained[1]:
        raise ValueError(
            f"{ours.side.name} trained {trained[0]} tokens a step, {other.side.name} {trained[1]}: "
            "they did not read the same trajectories"
        )
    pairs = list(zip(ours.steps, other.steps, strict=True))
    walls = [b["seconds"] / a["seconds"] for a, b in pairs]
    return {
        "ratio": round(statistics.median(walls), 2),
        "spread": [round(min(walls), 2), round(max(walls), 2)],
        "cpu": round(statistics.median(b["cpu_seconds"] / a["cpu_seconds"] for a, b in pairs), 2),
        "memory": round(other.ready["peak_bytes"] / ours.ready["peak_bytes"], 2),
        "loss_difference": max(abs(a["loss"] - b["loss"]) for a, b in pairs),
    }


HEADINGS = (
    "contestant",
    "settings",
    "trained tokens/s",
    "s a step",
    "processor s",
    "tokens computed",
    "compiled peak MiB",
    "resident peak MiB",
)


def cells(line: Line) -> tuple[str, ...]:
    """A row under `HEADINGS`."""
    return (
        line.name,
        line.note,
        f"{line.tokens_per_second:.1f}",
        f"{line.seconds:.2f}",
        f"{line.cpu_seconds:.2f}",
        f"{line.computed_tokens:,}",
        f"{line.peak_mib:,.0f}",
        f"{line.resident_mib:,.0f}",
    )


GOALS = (
    ("Tunix", "ratio", 2.0, "times the trained tokens a second of Tunix"),
    ("Tunix", "memory", 2.0, "times our compiled peak memory is what Tunix needs"),
    ("flat rows", "ratio", 1.6, "times the trained tokens a second of our own padded rows"),
)
"""Whose ratio, which, at least how much, in words."""


def goals(ratios: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each goal whose contestant took part."""
    return [
        f"{'met' if ratios[name][key] >= limit else 'MISSED'}: {ratios[name][key]} {words} "
        f"(goal: {limit:g})"
        for name, key, limit, words in GOALS
        if name in ratios
    ]


def markdown(title: str, lines: Sequence[Line], ratios: Mapping[str, Mapping[str, Any]]) -> str:
    """A section of the page: the table, and the ratios under it."""
    rows = ["| " + " | ".join(row) + " |" for row in (HEADINGS, *map(cells, lines))]
    rows.insert(1, "|" + "---|" * len(HEADINGS))
    told = [_told(name, ratio) for name, ratio in ratios.items()]
    reached = [f"- {line}" for line in goals(ratios)]
    return "\n".join([f"## {title}", "", *rows, "", *told, "", *reached, ""])


def _told(name: str, ratio: Mapping[str, Any]) -> str:
    least, most = ratio["spread"]
    return (
        f"- to {name}: **{ratio['ratio']}** times as fast ({least} to {most} by round; "
        f"{ratio['cpu']} by processor time); compiled peak memory of {name}: {ratio['memory']} "
        f"times ours; losses of all steps within {ratio['loss_difference']:.1g}"
    )
