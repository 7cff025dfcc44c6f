"""Scores for people: a table of components, how the total came about, and what is safe to print."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from patchgym.rewards.base import Fault, Reward, Score
from patchgym.rewards.composite import total_of
from patchgym.rewards.config import Part, RewardConfig

STATUS_STYLES = {"measured": "", "gated": "dim", "unknown": "yellow"}


def plain(text: str) -> str:
    """One line that does nothing to a terminal: tabs widened, what can't be shown is a dot."""
    return "".join(each if each.isprintable() else "·" for each in text.expandtabs(4))


def place(fault: Fault) -> str:
    """`path:line: `, as far as it is known."""
    line = f":{fault.line}" if fault.path and fault.line is not None else ""
    return f"{fault.path}{line}: " if fault.path else ""


def score_table(reward: Reward, *, told: str = "") -> Table:
    """A row for each component: value, weight, what it adds, seconds, and what became of it.

    `told` is a reason that was said before, and need not be said in every row.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("component", no_wrap=True)
    for name in ("value", "weight", "adds", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status")
    for score in reward.scores:
        cells = _cells(score, score.detail.removesuffix(f": {told}") if told else score.detail)
        table.add_row(*map(Text, cells), style=STATUS_STYLES[score.status])
    return table


def signed(value: float) -> str:
    """With its sign, unless it is nothing."""
    return f"{value:+.3f}" if abs(value) >= 0.0005 else "0.000"


def _cells(score: Score, detail: str) -> tuple[str, ...]:
    known, counts = score.value is not None, bool(score.weight)
    why = f": {plain(detail)}" if detail and not known else ""
    return (
        plain(score.name),
        f"{abs(score.value):.3f}" if score.value is not None else "-",
        f"{score.weight:+g}" if counts else "0",
        signed(score.contribution) if counts and known else "-",
        f"{score.seconds:.1f}",
        f"{score.status}{'' if counts or not known else ', not counted'}{why}",
    )


def sum_of(config: RewardConfig, reward: Reward) -> str:
    """How the total came about, in one line."""
    if reward.total is None:
        return f"the total is unknown: {_unknown(config, reward)}"
    rubric = config.combine == "rubric"
    steps = _rubric(config, reward) if rubric else _sum(config, reward)
    words = f"{'rubric' if rubric else 'sum'}: {', '.join(steps) or 'nothing counts'}"
    clip = config.clip
    if clip and (raw := _unclipped(config, reward)) is not None and raw != reward.total:
        words += f" = {raw:.3f}, clipped to {clip[0]:g} to {clip[1]:g}"
    return f"{words} = {reward.total:.3f}"


def _unknown(config: RewardConfig, reward: Reward) -> str:
    for part in config.parts:
        score = reward.score(part.name)
        if part.required and (score is None or score.status == "unknown"):
            return f"{part.name} is required, and could not be measured"
    return "it was never composed"


def _sum(config: RewardConfig, reward: Reward) -> Iterator[str]:
    for part, score in _counted(config, reward):
        if score.value is not None:
            yield f"{part.name} {signed(score.contribution)}"


def _rubric(config: RewardConfig, reward: Reward) -> Iterator[str]:
    for part, score in _counted(config, reward, all_parts=True):
        if score.status == "unknown":
            continue
        if score.value is None:
            yield f"it ends at {part.name}, which is gated"
            return
        share = 1.0 - score.value if part.component.penalty else score.value
        yield f"{part.name} {signed(part.weight * share)} of {part.weight:g}"
        if share < 1.0:
            yield "and it ends there"
            return


def _counted(
    config: RewardConfig, reward: Reward, *, all_parts: bool = False
) -> Iterator[tuple[Part, Score]]:
    for part in config.parts:
        score = reward.score(part.name)
        if score is not None and (part.weight or all_parts):
            yield part, score


def _unclipped(config: RewardConfig, reward: Reward) -> float | None:
    free = RewardConfig(parts=config.parts, combine=config.combine, normalize=config.normalize)
    return total_of(free, reward.scores)
