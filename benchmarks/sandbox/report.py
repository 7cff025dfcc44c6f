"""What was measured, as a table, a page, goals, and one JSON object. Standard library only."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A sample, summed up."""

    p25: float
    p50: float
    p75: float
    p99: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        if len(values) == 1:
            return cls(p25=values[0], p50=values[0], p75=values[0], p99=values[0], count=1)
        quarters = statistics.quantiles(values, n=4, method="inclusive")
        hundredths = statistics.quantiles(values, n=100, method="inclusive")
        p25, p50, p75 = quarters
        return cls(p25=p25, p50=p50, p75=p75, p99=hundredths[98], count=len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One number that is wanted."""

    text: str
    """As the issue has it."""
    value: float | None
    """Measured; None when it could not be."""
    limit: float
    at_least: bool = False
    """The value must be at least the limit, not at most."""

    @property
    def verdict(self) -> str:
        """met, missed or not measured."""
        if self.value is None:
            return "not measured"
        good = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "met" if good else "missed"


@dataclass(slots=True)
class Report:
    """Filled by the measurements, in the order of the page."""

    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Milliseconds by (measurement, contestant)."""
    facts: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """Other numbers and what they count, by (measurement, contestant)."""
    notes: list[str] = field(default_factory=list)
    """Who could not take part, and why; what else a reader should know."""
    goals: list[Goal] = field(default_factory=list)
    """In the order of the report."""

    def time(self, measurement: str, contestant: str, seconds: float) -> None:
        """One more sample."""
        self.times.setdefault((measurement, contestant), []).append(seconds * 1e3)

    def fact(self, measurement: str, contestant: str, value: float, unit: str) -> None:
        """A number that is not a sample of times."""
        self.facts[measurement, contestant] = (value, unit)

    def note(self, contestant: str, measurement: str, reason: object) -> None:
        """Somebody could not do something."""
        self.notes.append(f"{contestant}, {measurement}: {reason}")

    def median(self, measurement: str, contestant: str) -> float | None:
        """Milliseconds, if it was measured."""
        values = self.times.get((measurement, contestant))
        return statistics.median(values) if values else None

    def value(self, measurement: str, contestant: str) -> float | None:
        """A fact's number, if it was measured."""
        return self.facts.get((measurement, contestant), (None, ""))[0]

    def ratio(self, measurement: str, above: str, below: str) -> float | None:
        """Of two contestants' medians."""
        one, other = self.median(measurement, above), self.median(measurement, below)
        return one / other if one is not None and other else None

    def goal(self, text: str, value: float | None, limit: float, *, at_least: bool = False) -> None:
        """Note a goal and what came of it."""
        self.goals.append(Goal(text=text, value=value, limit=limit, at_least=at_least))


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def times_table(report: Report, measurement: str, reference: str) -> str:
    """Of one measurement; with a reference contestant, the last column compares with it."""
    rows = []
    for (name, contestant), values in report.times.items():
        if name == measurement:
            spread = Spread.of(values)
            quartiles = f"{number(spread.p25)} to {number(spread.p75)}"
            row = [contestant, number(spread.p50), quartiles, str(spread.count)]
            if reference:
                row.append(number(report.ratio(measurement, contestant, reference)))
            rows.append(row)
    head = ["", "median, ms", "quartiles", "count"]
    return table(head + ([f"times {reference}"] if reference else []), rows)


def facts_table(report: Report, measurement: str) -> str:
    """Of one measurement that is not a time."""
    rows = [
        [contestant, f"{number(value)} {unit}".rstrip()]
        for (name, contestant), (value, unit) in report.facts.items()
        if name == measurement
    ]
    return table(["", ""], rows)


def alone_table(report: Report) -> str:
    """What only one contestant was measured in, a line each."""
    crowd = Counter(name for name, _ in (*report.times, *report.facts))
    rows = []
    for (name, contestant), values in report.times.items():
        if crowd[name] == 1:
            spread = Spread.of(values)
            text = f"{number(spread.p50)} ms"
            if spread.count > 1:
                text += f" ({number(spread.p25)} to {number(spread.p75)}"
                text += f", p99 {number(spread.p99)}" if spread.count >= 100 else ""
                text += f", {spread.count} times)"
            rows.append([name, contestant, text])
    for (name, contestant), (value, unit) in report.facts.items():
        if crowd[name] == 1:
            rows.append([name, contestant, f"{number(value)} {unit}".rstrip()])
    return table(["", "", ""], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up, but for the last."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head) - 1)] + [0]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, [head, ["-" * max(width, 3) for width in widths], *rows]))


def page(report: Report, *, head: Sequence[str], reference: Mapping[str, str]) -> str:
    """The whole report as Markdown; `head` says when, how and on what it was measured."""
    goals = [[goal.text, number(goal.value), goal.verdict] for goal in report.goals]
    parts = [
        "# Sandboxes, side by side",
        "\n".join(head),
        table(["goal", "measured", ""], goals),
    ]
    crowd = Counter(name for name, _ in (*report.times, *report.facts))
    for name in dict.fromkeys(name for name, _ in report.times if crowd[name] > 1):
        parts += [f"## {name}", times_table(report, name, reference.get(name, ""))]
    for name in dict.fromkeys(name for name, _ in report.facts if crowd[name] > 1):
        parts += [f"## {name}", facts_table(report, name)]
    if 1 in crowd.values():
        parts += ["## One contestant alone", alone_table(report)]
    if report.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in report.notes)]
    return "\n\n".join(parts) + "\n"


def result(report: Report, ratios: Mapping[str, float | None]) -> dict[str, Any]:
    """For programs: named ratios, goals, and every spread."""
    spread = {
        f"{measurement} / {contestant}": {
            "p25": round(found.p25, 3),
            "p50": round(found.p50, 3),
            "p75": round(found.p75, 3),
            "count": found.count,
        }
        for (measurement, contestant), values in report.times.items()
        for found in [Spread.of(values)]
    }
    facts = {f"{one} / {two}": round(v, 3) for (one, two), (v, _) in report.facts.items()}
    goals = {goal.text: [goal.value, goal.verdict] for goal in report.goals}
    named = {key: round(value, 3) for key, value in ratios.items() if value is not None}
    return {**named, "goals": goals, "facts": facts, "spread": spread, "notes": report.notes}
