"""The table that ends a policy's evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

Row = tuple[str, str]


def print_policy_report(record: Mapping[str, Any], console: Console) -> None:
    """A report's document for people."""
    rollouts = record["rollouts"]
    rows: list[Row] = [
        ("policy", str(record["policy"].get("spec", "not opened yet"))),
        *_rates(record["pass_at"]),
        ("rollouts", _rollouts(rollouts)),
        ("ended by", _counts(rollouts["outcomes"])),
        *_errors(record),
        *_tokens(record),
        *_spreads(record),
        *_cost(record["cost"]),
        ("run", record["run"]),
    ]
    for name, value in rows:
        line = Text(f"{name:<18} ", style="dim")
        line.append(value, style="bold not dim" if name.startswith("pass@") else "not dim")
        console.print(line, highlight=False, soft_wrap=True)
    for words, count in list(rollouts["unknown_reasons"].items())[:8]:
        console.print(f"  {count} x {words}", markup=False, highlight=False, soft_wrap=True)


def _rates(pass_at: Mapping[str, Any]) -> Iterator[Row]:
    for k, found in pass_at.items():
        low, high = found["interval"]
        yield (
            f"pass@{k}",
            f"{found['rate']:.1%}, 95% interval {low:.1%} to {high:.1%}, {found['tasks']} tasks",
        )


def _rollouts(rollouts: Mapping[str, Any]) -> str:
    words = f"{rollouts['kept']} of {rollouts['planned']}"
    if rollouts["unknown"]:
        words += f", {rollouts['unknown']} with an unknown outcome are left out of the rates"
    return words


def _errors(record: Mapping[str, Any]) -> Iterator[Row]:
    broken = [each for each in record["errors"] if each not in record["verdicts"]]
    if broken:
        yield "unusable tasks", f"{len(broken)}: {', '.join(broken[:8])}"


def _tokens(record: Mapping[str, Any]) -> Iterator[Row]:
    tokens = record["tokens"]
    if tokens["prompt_per_task"] is None:
        return
    for name, each in (("prompt tokens", "prompt"), ("sampled tokens", "sampled")):
        yield (
            name,
            f"{tokens[each]:,} in all, {tokens[f'{each}_per_task']:,.0f} a task, "
            f"{tokens[f'{each}_per_rollout']:,.0f} a rollout",
        )


def _spreads(record: Mapping[str, Any]) -> Iterator[Row]:
    for name, key in (("turns", "turns"), ("seconds a rollout", "rollout_seconds")):
        found = record[key]
        if found["mean"] is not None:
            shares = ", ".join(f"{share} {found[share]:.1f}" for share in ("p50", "p95", "max"))
            yield name, f"mean {found['mean']:.1f}, {shares}"


def _cost(cost: Mapping[str, float] | None) -> Iterator[Row]:
    if cost is None:
        return
    words = [f"${cost['total']:.4f} in all"]
    for name, key in (("task", "per_task"), ("resolved rollout", "per_resolved")):
        if key in cost:
            words.append(f"${cost[key]:.4f} a {name}")
    yield "cost", ", ".join(words)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
