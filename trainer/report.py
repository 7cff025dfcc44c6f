"""What a run came to: one summary, read from its folder, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .ledger import LedgerReader
from .run_folder import RunFolder
from .statistics import pass_rate, percentile


def summarize(folder: RunFolder) -> dict[str, Any]:
    """The run's summary, JSON types only."""
    config = folder.load_config()
    with LedgerReader(folder.ledger) as reader:
        idle = reader.meta("idle", {})
        seconds = [row["seconds"] for row in reader.rows("SELECT seconds FROM rollouts")]
        return {
            "run": str(folder.path),
            "state": reader.meta("state", "unknown"),
            "steps": len(reader.steps()),
            "planned_steps": config.run.steps,
            "seed": config.run.seed,
            "seconds": reader.meta("seconds", 0.0),
            "heldout": _heldout(reader),
            "learner": {
                "idle_share": idle.get("idle_share", 0.0),
                "idle_reasons": idle.get("idle_reasons", {}),
                "busy_seconds": idle.get("busy", {}),
            },
            "rollout_seconds": {
                name: percentile(seconds, share) if seconds else None
                for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
            },
            "groups": _groups(reader),
            "outcomes": _outcomes(reader),
            "alarms": _alarms(reader),
            "history": reader.steps(),
            "trajectories": str(folder.trajectories),
            "curve": str(folder.curve) if folder.curve.is_file() else None,
        }


def _heldout(reader: LedgerReader) -> dict[str, Any]:
    result: dict[str, Any] = {}
    rows = reader.rows("SELECT * FROM evaluations WHERE resolved IS NOT NULL")
    names = {row["name"] for row in rows}
    for name in ("before", "after"):
        if name not in names or reader.meta(f"evaluation.{name}") is None:
            continue
        outcomes: dict[str, list[bool]] = defaultdict(list)
        for row in rows:
            if row["name"] == name:
                outcomes[row["task_id"]].append(bool(row["resolved"]))
        result[name] = asdict(pass_rate(outcomes))
    return result


def _groups(reader: LedgerReader) -> dict[str, Any]:
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in reader.rows("SELECT state, reason FROM groups"):
        states[row["state"]] += 1
        if row["state"] == "dropped":
            reasons[row["reason"]] += 1
    return {"states": dict(states), "dropped": dict(reasons)}


def _outcomes(reader: LedgerReader) -> dict[str, int]:
    sql = "SELECT stop_reason, COUNT(*) AS n FROM rollouts GROUP BY stop_reason"
    return {row["stop_reason"]: row["n"] for row in reader.rows(sql)}


def _alarms(reader: LedgerReader) -> dict[str, Any]:
    """By kind: how many, and the words of the last; stalls of the whole run count as one kind."""
    found: dict[str, Any] = {}
    for row in reader.rows("SELECT kind, detail FROM events ORDER BY time"):
        detail = json.loads(row["detail"])
        if row["kind"] == "alarm":
            kind, words = detail["alarm"], detail["words"]
        elif row["kind"] == "stalled":
            first = detail["report"].splitlines()[0]
            kind, words = "stalled", f"nothing moved for {detail['seconds']:.0f} s: {first}"
        else:
            continue
        found[kind] = {"count": found.get(kind, {"count": 0})["count"] + 1, "last": words}
    return found


def print_summary(summary: dict[str, Any], console: Console) -> None:
    """The summary for people."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    minutes = summary["seconds"] / 60
    table.add_row("run", summary["run"])
    table.add_row(
        "steps",
        f"{summary['steps']} of {summary['planned_steps']} ({summary['state']}), "
        f"{minutes:.1f} minutes",
    )
    for name, result in summary["heldout"].items():
        low, high = result["interval"]
        table.add_row(
            f"held out {name}",
            f"[bold]{result['pass_rate']:.1%}[/bold]  95% interval {low:.1%} to {high:.1%}, "
            f"{result['samples']} samples",
        )
    learner = summary["learner"]
    reasons = ", ".join(f"{why} {share:.0%}" for why, share in learner["idle_reasons"].items())
    table.add_row(
        "learner idle", f"{learner['idle_share']:.0%}" + (f": {reasons}" if reasons else "")
    )
    table.add_row("groups", _counts(summary["groups"]["states"]))
    if summary["groups"]["dropped"]:
        table.add_row("dropped", _counts(summary["groups"]["dropped"]))
    table.add_row("rollouts", _counts(summary["outcomes"]))
    for kind, alarm in summary["alarms"].items():
        table.add_row(f"[yellow]{kind}[/yellow]", f"{alarm['count']} times; last: {alarm['last']}")
    table.add_row("trajectories", summary["trajectories"])
    if summary["curve"]:
        table.add_row("curve", summary["curve"])
    console.print(table, soft_wrap=True)
    if len(summary["history"]) > 1:
        console.print(terminal_curve(summary["history"]), markup=False, highlight=False)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "none"


def terminal_curve(history: list[dict[str, Any]]) -> str:
    """The reward curve in characters."""
    import plotext

    history = [row for row in history if row["reward"] is not None]
    steps = [row["step"] + 1 for row in history]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(72, 14)
    plotext.plot(steps, [row["reward"] for row in history], marker="braille")
    plotext.title("mean reward of training rollouts, by step")
    top = max(row["reward"] for row in history)
    plotext.ylim(0, min(1.0, max(0.1, 1.25 * top)))
    ticks = steps[:: max(1, len(steps) // 10)]
    plotext.xticks(ticks, [str(tick) for tick in ticks])
    return str(plotext.uncolorize(plotext.build()))


def write_curve(summary: dict[str, Any], path: Path) -> None:
    """The reward curve, with the held-out rates, as a PNG (blocking; a second)."""
    from matplotlib.figure import Figure

    history = [row for row in summary["history"] if row["reward"] is not None]
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    steps = [row["step"] + 1 for row in history]
    axes.plot(steps, [row["reward"] for row in history], "o-", label="training reward (mean)")
    axes.plot(steps, [row["pass_rate"] for row in history], ".--", label="training pass rate")
    places = {"before": 0, "after": summary["steps"] + 1}
    for name, result in summary["heldout"].items():
        low, high = result["interval"]
        rate = result["pass_rate"]
        axes.errorbar(
            [places[name]], [rate], yerr=[[rate - low], [high - rate]], fmt="D", capsize=4,
            color="black", label=f"held out {name}: {rate:.0%}",
        )  # fmt: skip
    axes.set(xlabel="step", ylabel="share", ylim=(0, 1), title="patchgym: repair tasks")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial)
    partial.replace(path)


def to_json(summary: dict[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(summary, indent=2)
