"""A reward in words before anything is scored: its components, range, cost and pitfalls."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from patchgym.rewards.config import Part, RewardConfig

_HEADER = ("component", "weight", "counts", "looks at", "deadline", "options")
_DISHONEST = ("regressions", "tampering")
"""Penalties for harm, which is as bad where nothing is solved."""


def reward_lines(config: RewardConfig) -> list[str]:
    """The whole account in plain lines: for `train --dry-run`, and for pages."""
    rows = [_HEADER, *map(_row, config.parts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
    table = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)),
                        row[-1]]).rstrip() for row in rows]  # fmt: skip
    return [
        headline(config),
        *(f"  {line}" for line in table),
        *(f"  {line}" for line in costs(config)),
        *(f"  warning: {line}" for line in warnings(config)),
    ]


def headline(config: RewardConfig) -> str:
    """How the components come together, and the least and the most that they can come to."""
    return f"reward: {_how(config)}, {_range(config)}"


def reward_table(config: RewardConfig) -> Table:
    """The components alone, for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in _HEADER:
        table.add_column(name, no_wrap=name in ("component", "weight"))
    for part in config.parts:
        table.add_row(*(Text(cell) for cell in _row(part)), style="" if part.weight else "dim")
    return table


def costs(config: RewardConfig) -> list[str]:
    """What scoring one patch takes besides a moment; identical patches are scored once."""
    lines = []
    if judged := _needing(config, "verdict"):
        lines.append(f"{judged}: a sandbox with the task's image for every patch")
    if linted := _needing(config, "lint"):
        tools = {each.tool.name: None for part in config.parts for each in part.component.linters()}
        names = f" ({', '.join(tools)})" if tools else ""
        lines.append(f"{linted}: a sandbox with linters{names} for every patch")
    if heavy := ", ".join(part.name for part in config.parts if part.component.heavy):
        lines.append(f"{heavy}: a process of their own")
    return lines


def warnings(config: RewardConfig) -> list[str]:
    """What can be set like that and makes little sense, one line each."""
    rubric = config.combine == "rubric"
    return [
        *_of_solving(config),
        *_of_clip(config),
        *(_of_order(config) if rubric else _of_penalties(config)),
        *(line for part in config.parts for line in _of_part(part, config)),
        *_of_normalize(config),
    ]


def _row(part: Part) -> tuple[str, ...]:
    gate = f"where {part.gate} > {part.gate_above:g}" if part.gate else "always"
    counts = gate + (", required" if part.required else "")
    return (
        part.name,
        f"{part.signed:+g}" if part.weight else "0",
        counts if part.weight else "never: only measured",
        ", ".join(["the diff", *sorted(part.component.needs)]),
        f"{part.deadline:g} s",
        ", ".join(f"{key} = {value!r}" for key, value in part.options.items()),
    )


def _how(config: RewardConfig) -> str:
    if config.combine == "rubric":
        return "a rubric, which ends at the first component that is not full"
    if config.normalize == "components":
        return "a weighted sum, each component compared by itself in a group"
    return "a weighted sum"


def _range(config: RewardConfig) -> str:
    low, high = config.bounds
    clip = ", clipped" if config.clip is not None else ""
    return f"from {low:g} at least to {high:g} at most{clip}"


def _needing(config: RewardConfig, need: str) -> str:
    return ", ".join(part.name for part in config.parts if need in part.component.needs)


def _of_solving(config: RewardConfig) -> Iterator[str]:
    tests = config.part("tests")
    if tests is None or not tests.weight:
        yield "tests has no weight: solving a task earns nothing by itself"


def _of_penalties(config: RewardConfig) -> Iterator[str]:
    earned = sum(part.weight for part in config.parts if not part.component.penalty)
    taken = sum(part.weight for part in config.parts if part.component.penalty)
    if taken >= earned:
        yield (
            f"penalties add up to {taken:g} and everything else to {earned:g}: a task that is "
            "solved can be worth less than an empty patch; lower them, or set clip"
        )
    for part in config.parts:
        harmless = part.name not in _DISHONEST
        if part.weight and part.component.penalty and harmless and not part.gate:
            yield (
                f"{part.name} counts where nothing is solved too: there an empty patch is the "
                'best; set gate = "tests"'
            )


def _of_order(config: RewardConfig) -> Iterator[str]:
    before = []
    for part in config.parts:
        if part.name == "tests":
            break
        before.append(part.name)
    if before and config.part("tests"):
        yield (
            f"the rubric comes to tests after {', '.join(before)}: solving earns nothing where "
            "those are not full; name tests first"
        )


def _of_clip(config: RewardConfig) -> Iterator[str]:
    if config.clip is None:
        return
    free = RewardConfig(parts=config.parts, combine=config.combine, normalize=config.normalize)
    (low, high), tests = free.bounds, config.part("tests")
    if config.clip[0] >= high or config.clip[1] <= low:
        yield f"clip makes all totals equal: they are from {low:g} to {high:g} without it"
    elif tests is not None and config.clip[1] < tests.weight:
        yield (
            f"clip ends at {config.clip[1]:g} and solving earns {tests.weight:g}: good patches "
            "can't be told apart"
        )


def _of_part(part: Part, config: RewardConfig) -> Iterator[str]:
    gate = config.part(part.gate) if part.gate else None
    if gate is not None and gate.component.penalty:
        yield (
            f"{part.name} counts only where {gate.name} is above {part.gate_above:g}, and that is "
            "a penalty: it counts where things are bad"
        )
    if not part.weight and part.required:
        yield f"{part.name} has no weight and is required: without its value there is no reward"
    if not part.weight and config.combine == "rubric" and part is not config.parts[-1]:
        yield f"{part.name} has no weight, but the rubric ends at it where it is not full"


def _of_normalize(config: RewardConfig) -> Iterator[str]:
    if config.normalize == "components" and sum(bool(part.weight) for part in config.parts) < 2:
        yield "normalize = 'components' is the same as 'total' for a single component"
