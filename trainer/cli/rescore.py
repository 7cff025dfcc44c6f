"""`patchgym runs rescore`: the stored rollouts of a run under another reward, and what changes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from patchgym.rewards.config import RewardConfig
from patchgym.trainer.config import RunConfig
from patchgym.trainer.rescored import Agreement, Rescored, compare, most_moved
from patchgym.trainer.rescoring import Rescoring, rescore, tasks_of
from patchgym.trainer.reward_words import headline, reward_table, warnings
from patchgym.trainer.run_folder import RunFolder, find_run
from patchgym.trainer.score_table import plain
from patchgym.trainer.stored_verdicts import open_score

from .number_words import positive
from .reward_file import read_reward

_NAMED = 10


def add_rescore(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The arguments of `runs rescore`."""
    words = actions.add_parser("rescore", help="score stored rollouts under another reward")
    words.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    words.add_argument(
        "--rewards", type=Path, metavar="FILE",
        help="TOML with a [reward] section; without, the run's own: totals must come out the same",
    )  # fmt: skip
    words.add_argument(
        "--limit", type=positive, default=0, metavar="N", help="the first N rollouts"
    )
    words.add_argument("--json", action="store_true")


def run_rescore(known: argparse.Namespace) -> int:
    """Score and compare; exit code 1 when a run's own reward gives other totals."""
    folder = find_run(known.run, known.folder)
    config = folder.load_config()
    own = known.rewards is None
    reward = config.reward if own else read_reward(known.rewards)
    done = anyio.run(_rescore, folder, config, reward, known.limit)
    agreement = compare(done.rows)
    if known.json:
        print(json.dumps(rescoring_record(done, agreement, own=own), indent=2))
    else:
        print_rescoring(done, agreement, Console(), own=own)
    return 1 if own and agreement.moved else 0


async def _rescore(
    folder: RunFolder, config: RunConfig, reward: RewardConfig, limit: int
) -> Rescoring:
    tasks = tasks_of(config, folder.path)
    async with open_score(reward, config, on_opening=_tell) as score:
        return await rescore(folder, reward, tasks, score, limit=limit, progress=_progress)


def _tell(words: str) -> None:
    print(words, file=sys.stderr)


def _progress(done: int, total: int) -> None:
    if done < total:
        _tell(f"{done} of {total} rollouts")


def rescoring_record(done: Rescoring, agreement: Agreement, *, own: bool) -> dict[str, Any]:
    """The comparison as one JSON document."""
    from dataclasses import asdict

    return {
        "file": str(done.file),
        "own_reward": own,
        "reward": done.reward.as_mapping(),
        "scored": len(done.rows),
        "left_out": dict(done.left_out),
        "damaged": done.damaged,
        "unknown": {row.rollout_id: row.detail for row in _unknown(done)},
        **asdict(agreement),
        "most_moved": [
            {"rollout_id": row.rollout_id, "before": row.before, "after": row.after,
             "cause": row.cause, "moves": dict(row.moves)}
            for row in most_moved(done.rows, _NAMED)
        ],
    }  # fmt: skip


def print_rescoring(done: Rescoring, agreement: Agreement, console: Console, *, own: bool) -> None:
    """The comparison for people."""
    _say(console, headline(done.reward))
    console.print(reward_table(done.reward))
    for line in warnings(done.reward):
        _say(console, f"warning: {line}", "yellow")
    console.print()
    if own:
        _say(console, _honesty(done, agreement), "red" if agreement.moved else "green")
    for name, value in _rows(done, agreement):
        console.print(Text.assemble((f"{name:<20} ", "dim"), value), soft_wrap=True)
    console.print()
    console.print(_components(agreement))
    moved = most_moved(done.rows, _NAMED)
    if moved:
        console.print()
        console.print(_moved(moved))
    for line in _losses(done):
        _say(console, line, "yellow")
    _say(console, f"every rollout: {done.file}")


def _honesty(done: Rescoring, agreement: Agreement) -> str:
    known = len(done.rows)
    if not agreement.moved:
        return f"the run's own reward gives the same total for all {known} rollouts"
    return (
        f"the run's own reward gives another total for {agreement.moved} of {known} rollouts: a "
        "component, a tool or the table of tasks is not what it was"
    )


def _rows(done: Rescoring, found: Agreement) -> Iterator[tuple[str, str]]:
    yield "scored", f"{len(done.rows)} rollouts, {found.rollouts} with a total under both rewards"
    if found.mean_before is not None and found.mean_after is not None:
        yield "mean total", f"{found.mean_before:.3f} -> {found.mean_after:.3f}"
    yield (
        "rank correlation",
        f"Spearman {_number(found.spearman)}, Kendall {_number(found.kendall)}",
    )
    yield (
        "within groups",
        f"Spearman {_number(found.spearman_in_groups)}, "
        f"Kendall {_number(found.kendall_in_groups)}, mean of {found.groups} with a spread in both",
    )
    yield (
        "advantages",
        f"{found.reversed} change sign, {found.unsigned} come from or go to none; "
        f"{found.gained} groups gain a spread, {found.lost} lose theirs",
    )


def _components(found: Agreement) -> Table:
    table = _table("component", "mean before", "mean after", "measured before", "after")
    for each in found.components:
        table.add_row(
            plain(each.name), _number(each.before), _number(each.after),
            str(each.measured_before), str(each.measured_after),
        )  # fmt: skip
    return table


def _moved(rows: list[Rescored]) -> Table:
    table = _table("moved most", "before", "after", "change", "most by")
    table.columns[-1].justify = "left"
    for row in rows:
        cause = f"{row.cause} {row.moves[row.cause]:+.3f}" if row.cause else "the way they add up"
        table.add_row(
            plain(row.rollout_id), _number(row.before), _number(row.after),
            f"{row.change or 0.0:+.3f}", plain(cause),
        )  # fmt: skip
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _losses(done: Rescoring) -> Iterator[str]:
    for reason, count in done.left_out.most_common():
        yield f"left out: {count} x {reason}"
    yield from _some("damaged", list(done.damaged.items()))
    unknown = [(row.rollout_id, row.detail) for row in _unknown(done)]
    yield from _some("unknown now", unknown)


def _some(what: str, found: list[tuple[str, str]]) -> Iterator[str]:
    for name, why in found[:_NAMED]:
        yield f"{what}: {name}: {why}"
    if len(found) > _NAMED:
        yield f"{what}: and {len(found) - _NAMED} more"


def _unknown(done: Rescoring) -> list[Rescored]:
    """Those without a new total, or with a component that could not be measured."""
    return [row for row in done.rows if row.after is None or row.detail]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(plain(line), style=style), soft_wrap=True)
