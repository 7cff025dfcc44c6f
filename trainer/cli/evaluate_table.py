"""The tables that end an evaluation and a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from patchgym.rewards.evaluation import Comparison

_NAMED = 8  # ids that a row of the table names


def print_evaluation(record: Mapping[str, Any], console: Console) -> None:
    """A report's document for people."""
    low, high = record["resolved_interval"]
    several = record["repeats"]["count"] > 1
    first = " (first repeat)" if several else ""
    rows = [
        ("resolved", f"{record['resolved_instances']} of {record['total_instances']}{first}"),
        ("rate", f"{record['resolved_rate']:.1%}, 95% interval {low:.1%} to {high:.1%}"),
        *_errors(record),
        *((name, _named(ids)) for name, ids in _lists(record).items() if ids),
        *(_repeats(record["repeats"]) if several else ()),
        *_seconds(record["seconds"]),
    ]
    _print(rows, console)
    for task_id, reason in list(record["errors"].items())[:_NAMED]:
        _plain(console, f"  {task_id}: {reason}")
    if len(record["errors"]) > _NAMED:
        _plain(console, f"  and {len(record['errors']) - _NAMED} more errors in the report")
    for note in record["notes"][:_NAMED]:
        _plain(console, f"  {note}")


def print_comparison(comparison: Comparison, console: Console) -> None:
    """A comparison for people."""
    low, high = comparison.interval
    alone = (("base", comparison.only_base), ("compared", comparison.only_other))
    rows = [
        ("base", f"{comparison.base_rate:.1%}  {comparison.base}"),
        ("compared", f"{comparison.other_rate:.1%}  {comparison.other}"),
        (
            "difference",
            f"{100 * comparison.difference:+.1f} points, 95% interval {100 * low:+.1f} to "
            f"{100 * high:+.1f} (paired bootstrap over {comparison.tasks} tasks, "
            f"{comparison.resamples:,} resamples)",
        ),
        ("p-value", f"{comparison.p_value:.3g} (exact sign test on the tasks below)"),
        ("gained", _named(comparison.gained)),
        ("lost", _named(comparison.lost)),
        *(
            ("left out", f"with a verdict in {name} alone: {_named(ids)}")
            for name, ids in alone
            if ids
        ),
    ]
    _print(rows, console)


def _errors(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the rate would be if the tasks without a verdict were known."""
    total, resolved = record["total_instances"], record["resolved_instances"]
    errors = total - record["judged_instances"]
    if errors:
        yield (
            "",
            f"of the {record['judged_instances']} with a verdict; whatever the other {errors} are, "
            f"{resolved / total:.1%} to {(resolved + errors) / total:.1%}",
        )


def _lists(record: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    verdicts = record["verdicts"]
    by_evidence: dict[str, list[str]] = {}
    for each, row in verdicts.items():
        by_evidence.setdefault(row["evidence"], []).append(each)
    return {
        "unresolved": record["unresolved_ids"],
        "  patch refused": by_evidence.get("patch_refused", ()),
        "  inconsistent": by_evidence.get("inconsistent", ()),
        "  tampered": record["tampered_ids"],
        "empty patch": record["empty_patch_ids"],
        "no prediction": record["incomplete_ids"],
        "no verdict": record["error_ids"],
        "  unusable": record["unusable_ids"],
        "flaky tests in": record["flaky_ids"],
        "unknown tasks": record["unknown_ids"],
    }


def _repeats(repeats: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "repeats", "  ".join(f"{each['rate']:.1%}" for each in repeats["rates"])
    yield (
        "  spread",
        f"mean {repeats['mean']:.1%}, {repeats['minimum']:.1%} to {repeats['maximum']:.1%}, "
        f"standard deviation {100 * repeats['standard_deviation']:.1f} points",
    )
    yield "  changed", _named(list(repeats["changed"]))


def _seconds(seconds: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if seconds["p50"] is not None:
        shares = ("p50", "p95", "p99", "max")
        yield "seconds a task", ", ".join(f"{name} {seconds[name]:.1f}" for name in shares)
        slowest = list(seconds["slowest"].items())[:3]
        yield "  slowest", ", ".join(f"{each} ({taken:.1f})" for each, taken in slowest)


def _named(ids: Sequence[str]) -> str:
    """How many, and the first of them."""
    if not ids:
        return "none"
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{len(ids)}: {', '.join(ids[:_NAMED])}{more}"


def _print(rows: Sequence[tuple[str, str]], console: Console) -> None:
    for name, value in rows:
        line = Text(f"{name:<15} ", style="dim")
        line.append(value, style="bold not dim" if name in ("rate", "difference") else "not dim")
        console.print(line, highlight=False, soft_wrap=True)


def _plain(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
