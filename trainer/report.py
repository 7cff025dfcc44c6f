"""What a run came to: one summary, read from its folder, for people and for programs."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .config import RunSection
from .errors import RunError
from .ledger import LedgerReader
from .run_folder import RunFolder
from .statistics import pass_rate


def summarize(folder: RunFolder) -> dict[str, Any]:
    """The run's summary, JSON types only."""
    planned = _run_section(folder)
    with LedgerReader(folder.ledger) as reader:
        idle = reader.meta("idle", {})
        history = reader.steps()
        return {
            "run": str(folder.path),
            "state": reader.meta("state", "unknown"),
            "steps": len(history),
            "planned_steps": planned.get("steps", RunSection().steps),
            "seed": planned.get("seed", RunSection().seed),
            "seconds": reader.meta("seconds", 0.0),
            "heldout": _heldout(reader),
            "learner": {
                "idle_share": idle.get("idle_share", 0.0),
                "idle_reasons": idle.get("idle_reasons", {}),
                "busy_seconds": idle.get("busy", {}),
            },
            "sampler": idle.get("sampler", {"idle_share": None, "idle_reasons": {}}),
            "rollout_seconds": _seconds(reader),
            "groups": _groups(reader),
            "outcomes": _outcomes(reader),
            "alarms": _alarms(reader),
            "end": _end(reader),
            "history": history,
            "trajectories": str(folder.trajectories),
            "curve": str(folder.curve) if folder.curve.is_file() else None,
        }


def _run_section(folder: RunFolder) -> dict[str, Any]:
    """Of run.toml, and nothing else of it: checking a whole configuration takes ten times as long
    as reading the ledger of 100,000 rollouts."""
    try:
        section = tomllib.loads(folder.config.read_text()).get("run", {})
    except (OSError, ValueError) as error:
        raise RunError(f"{folder.config}: can't be read: {error}") from None
    return section if isinstance(section, dict) else {}


def _seconds(reader: LedgerReader) -> dict[str, float | None]:
    """Nearest-rank percentiles, read off the index: no list of all rollouts is made."""
    (count,) = reader.rows("SELECT COUNT(*) FROM rollouts")[0]
    found: dict[str, float | None] = {}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        sql = "SELECT seconds FROM rollouts ORDER BY seconds LIMIT 1 OFFSET ?"
        rows = reader.rows(sql, (max(0, math.ceil(share * count) - 1),))
        found[name] = rows[0]["seconds"] if rows else None
    return found


def _end(reader: LedgerReader) -> dict[str, Any] | None:
    """Why the run ended; None while it runs, or where it never said."""
    ended = reader.meta("state", "unknown") != "running"
    found: dict[str, Any] | None = reader.meta("end") if ended else None
    return found


def _heldout(reader: LedgerReader) -> dict[str, Any]:
    result: dict[str, Any] = {}
    sql = "SELECT name, task_id, resolved FROM evaluations WHERE resolved IS NOT NULL"
    outcomes: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for name, task_id, resolved in reader.rows(sql):
        outcomes[name][task_id].append(bool(resolved))
    for name in sorted(outcomes, key=_when):
        if reader.meta(f"evaluation.{name}") is not None:
            result[name] = asdict(pass_rate(outcomes[name]))
    return result


def _when(evaluation: str) -> tuple[int, int, str]:
    """Orders evaluations as they were made: before, step-5, step-10, after."""
    kind, _, step = evaluation.partition("-")
    number = int(step) if step.isdigit() else 0
    return {"before": 0, "step": 1}.get(kind, 2), number, evaluation


def _groups(reader: LedgerReader) -> dict[str, Any]:
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    sql = "SELECT state, reason, COUNT(*) AS n FROM groups GROUP BY state, reason"
    for row in reader.rows(sql):
        states[row["state"]] += row["n"]
        if row["state"] == "dropped":
            reasons[row["reason"]] += row["n"]
    return {"states": dict(states), "dropped": dict(reasons)}


def _outcomes(reader: LedgerReader) -> dict[str, int]:
    sql = "SELECT stop_reason, COUNT(*) AS n FROM rollouts GROUP BY stop_reason"
    return {row["stop_reason"]: row["n"] for row in reader.rows(sql)}


def _alarms(reader: LedgerReader) -> dict[str, Any]:
    """By kind: how many, and of the last the words and rollouts to look at; stalls of the whole run
    count as one kind."""
    found: dict[str, Any] = {}
    sql = "SELECT kind, detail FROM events WHERE kind IN ('alarm', 'stalled') ORDER BY time"
    for row in reader.rows(sql):
        detail = json.loads(row["detail"])
        if row["kind"] == "alarm":
            kind, words = detail["alarm"], detail["words"]
        else:
            first = detail["report"].splitlines()[0]
            kind, words = "stalled", f"nothing moved for {detail['seconds']:.0f} s: {first}"
        count = found.get(kind, {"count": 0})["count"] + 1
        found[kind] = {"count": count, "last": words, "examples": detail.get("examples", [])}
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
    table.add_row("learner idle", _idle_words(summary["learner"]))
    sampler = summary["sampler"]
    if sampler["idle_share"] is not None:
        table.add_row("sampler idle", _idle_words(sampler))
    table.add_row("groups", _counts(summary["groups"]["states"]))
    if summary["groups"]["dropped"]:
        table.add_row("dropped", _counts(summary["groups"]["dropped"]))
    table.add_row("rollouts", _counts(summary["outcomes"]))
    for kind, alarm in summary["alarms"].items():
        see = f"; see {', '.join(alarm['examples'])}" if alarm["examples"] else ""
        words = f"{alarm['count']} times; last: {alarm['last']}{see}"
        table.add_row(f"[yellow]{kind}[/yellow]", words)
    table.add_row("trajectories", summary["trajectories"])
    if summary["curve"]:
        table.add_row("curve", summary["curve"])
    console.print(table, soft_wrap=True)
    if len(summary["history"]) > 1:
        console.print(terminal_curve(summary["history"]), markup=False, highlight=False)


def _idle_words(account: dict[str, Any]) -> str:
    """A share and its reasons from half a percent up."""
    known = [(why, share) for why, share in account["idle_reasons"].items() if share >= 0.005]
    reasons = ", ".join(f"{why} {share:.0%}" for why, share in known)
    return f"{account['idle_share']:.0%}" + (f": {reasons}" if reasons else "")


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
    for name, result in summary["heldout"].items():
        low, high = result["interval"]
        rate = result["pass_rate"]
        axes.errorbar(
            [_place(name, summary["steps"])], [rate], yerr=[[rate - low], [high - rate]], fmt="D",
            capsize=4, color="black", label=f"held out {name}: {rate:.0%}",
        )  # fmt: skip
    lowest = min([0.0, *(row["reward"] for row in history)])
    highest = max([1.0, *(row["reward"] for row in history)])
    axes.set(xlabel="step", ylabel="share", ylim=(lowest, highest), title="patchgym: repair tasks")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial)
    partial.replace(path)


def _place(evaluation: str, steps: int) -> int:
    """Where an evaluation stands among the steps."""
    order, step, _ = _when(evaluation)
    return step if order < 2 else steps + 1


def to_json(summary: dict[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(summary, indent=2)
