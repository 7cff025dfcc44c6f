"""The picture of a training run, drawn from a snapshot: in `train`, and from another terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_BLOCK = "█"
_WIDTH = 30
"""Characters of a whole bar."""
_COLOURS = ("yellow", "magenta", "blue", "red", "cyan")
REASONS = 4
"""That a bar tells apart."""
_BRIEF = 0.5  # seconds: percentiles of stages that take less are not shown beside longer ones


def picture(now: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A panel. `now` is a `Progress.snapshot`, `history` what it keeps of the last steps."""
    parts: list[RenderableType] = [_phase(now)]
    if now["heldout"]:
        parts.append(_heldout(now["heldout"]))
    if any(row["reward"] is not None for row in history):
        parts.append(_curves(history))
    if now["phase"] == "training" or now["stages"]:
        parts.append(_now(now))
    if now["account"] and now["phase"] == "training":
        parts.append(_idle(now["account"]))
    if now["waits_for"]:
        parts.append(Text(inert(now["waits_for"]), style="yellow"))
    minutes, seconds = divmod(int(now["seconds"]), 60)
    title = Text.assemble(("patchgym", "bold"), f" · {now['title']} · {minutes}:{seconds:02d}")
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The last `width` values in [0, 1] as block characters."""
    return "".join(_BARS[min(7, max(0, int(value * 8)))] for value in values[-width:])


def _phase(now: Mapping[str, Any]) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    done, total = now["done"], now["total"]
    if now["phase"] == "training":
        done, total = now["step"], now["steps"]
    bar = [ProgressBar(total=total, completed=done, width=30)] if total > 0 else []
    count = [Text(f"{done}/{total}")] if total > 0 else []
    line.add_row(Text(now["phase"], style="bold"), *bar, *count)
    return line


def _heldout(heldout: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    text = Text("held out: ")
    for name, result in heldout.items():
        low, high = result["interval"]
        text.append(f"{name} ", style="dim")
        text.append(f"{result['pass_rate']:.1%}", style="bold green")
        text.append(f" [{low:.1%}, {high:.1%}]  ")
    return text


def _curves(history: Sequence[Mapping[str, Any]]) -> RenderableType:
    known = [row for row in history if row["reward"] is not None]
    table = Table.grid(padding=(0, 2))
    rewards = [float(row["reward"]) for row in known]
    rates = [float(row["pass_rate"]) for row in known]
    table.add_row("reward", Text(sparkline(rewards), style="green"), f"{rewards[-1]:.3f}")
    table.add_row("pass rate", Text(sparkline(rates), style="green"), f"{rates[-1]:.1%}")
    return table


def _now(now: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row("rollouts in", counts(now["stages"]) or "none under way")
    if now["phase"] != "training":
        return table
    slow = sorted(now["p95"].items(), key=lambda item: -item[1])
    shown = [item for item in slow if item[1] >= _BRIEF] or slow
    p95 = "  ".join(f"{stage} {_span(seconds)}" for stage, seconds in shown[:5])
    table.add_row("p95", Text(p95 or "no step yet"))
    queue = now["queue"]
    dropped = ", ".join(f"{n} {reason}" for reason, n in now["dropped"].items()) or "none"
    words = f"queue {queue['depth']}/{queue['capacity']}, {now['open_groups']} open, dropped: "
    table.add_row("groups", words + dropped)
    if now["staleness"]:
        stale = ", ".join(f"{n} of age {age}" for age, n in now["staleness"].items())
        table.add_row("trained last", f"groups: {stale}")
    if now["outcomes"]:
        table.add_row("ended by", counts(now["outcomes"]))
    doing = now["learner"]
    table.add_row("learner", f"{doing['doing']} since {doing['seconds']:.0f} s")
    table.add_row("speed", f"{now['tokens_per_second']:.0f} sampled tokens/s")
    return table


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def _idle(account: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    for name, one in (("learner idle", account), ("sampler idle", account.get("sampler", {}))):
        if one:
            reasons = list(one["idle_reasons"].items())
            table.add_row(name, f"{one['idle_share']:4.0%}", bar(reasons), _legend(reasons))
    return table


def bar(reasons: Sequence[tuple[str, float]]) -> Text:
    """Shares as blocks of a line: reasons in colours, work in green."""
    text, filled = Text(no_wrap=True), 0
    whole = sum(share for _, share in reasons)
    done = 0.0
    for index, (_, share) in enumerate(reasons):
        done += share
        upto = round(_WIDTH * min(1.0, done))
        colour = _COLOURS[index] if index < REASONS else "bright_black"
        text.append(_BLOCK * (upto - filled), style=colour)
        filled = upto
    busy = _WIDTH - filled if whole < 1.0 else 0
    return text.append(_BLOCK * busy, style="green")


def _legend(reasons: Sequence[tuple[str, float]]) -> Text:
    text = Text()
    told = [each for each in reasons[:REASONS] if each[1] >= 0.005]
    for index, (name, share) in enumerate(told):
        text.append(f"{share:.0%}", style=_COLOURS[index])
        text.append(f" {inert(name)}".replace(" ", "\N{NO-BREAK SPACE}") + "  ")
    return text


def inert(text: str) -> str:
    """Without anything that a terminal would obey: names may come from a policy or a data set."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def counts(numbers: Mapping[str, int]) -> str:
    """Names with their counts, in one line."""
    return inert("  ".join(f"{name} {count}" for name, count in sorted(numbers.items())))
