"""What there is to train on, in numbers and in words: for the dry run, and before every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .config import SftConfig
from .dataset import Dataset, Example, Gathered, Plan, to_groups
from .view import data_words

_NAMED = 10
"""Dropped conversations that are named one by one."""


def counts(examples: Sequence[Example]) -> dict[str, int]:
    """Numbers of some conversations."""
    return {
        "conversations": len(examples),
        "exact": sum(each.exact for each in examples),
        "tasks": len({each.task for each in examples}),
        "tokens": sum(each.tokens for each in examples),
        "learned": sum(each.learned for each in examples),
        "longest": max((each.longest for each in examples), default=0),
    }


def data_record(gathered: Gathered, dataset: Dataset) -> dict[str, Any]:
    """The data, JSON types only."""
    return {
        "digest": dataset.digest,
        "train": counts(dataset.train),
        "heldout": counts(dataset.heldout),
        "left_out": gathered.left_out,
        "dropped": dict(gathered.dropped),
    }


def rows_record(config: SftConfig, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """The rows that packing gives for the first epoch; nothing is computed."""
    from patchgym.trainer.batching import pack

    lengths: Counter[int] = Counter()
    flat = tree = padded = 0
    updates = min(plan.steps, plan.per_epoch)
    for step in range(updates):
        members = [dataset.train[place] for place in plan.members(step)]
        batch = pack(
            to_groups(members),
            row_tokens=config.learner.row_tokens,
            aggregation=config.learner.aggregation,
        )
        lengths.update(row.length for row in batch.rows)
        flat, tree, padded = (
            flat + batch.flat_tokens, tree + batch.tree_tokens, padded + batch.padded_tokens
        )  # fmt: skip
    return {
        "updates": updates,
        "rows": {str(length): lengths[length] for length in sorted(lengths)},
        "flat_tokens": flat,
        "tree_tokens": tree,
        "padded_tokens": padded,
    }


def data_lines(data: Mapping[str, Any]) -> list[str]:
    """The data in words."""
    lines = [
        f"to train on: {data_words(data['train'])}",
        f"held out: {data_words(data['heldout'])}",
    ]
    if data["heldout"]["conversations"] == 0:
        lines[1] = "held out: nothing"
    exact = data["train"]["exact"] + data["heldout"]["exact"]
    lines.append(f"{exact} conversations with stored ids, the others rendered by the template")
    if data["left_out"]:
        lines.append(f"{data['left_out']} rollouts of runs were not chosen")
    return [*lines, *_dropped_lines(data["dropped"])]


def _dropped_lines(dropped: Mapping[str, str]) -> list[str]:
    lines = [f"dropped {where}: {why}" for where, why in list(dropped.items())[:_NAMED]]
    if len(dropped) > _NAMED:
        lines.append(f"dropped {len(dropped) - _NAMED} more; --dry-run --json names them all")
    return lines


def plan_lines(config: SftConfig, plan: Plan, rows: Mapping[str, Any]) -> list[str]:
    """The updates and their rows in words."""
    shapes = ", ".join(f"{count} of {length}" for length, count in rows["rows"].items())
    saved = 1 - rows["tree_tokens"] / max(1, rows["flat_tokens"])
    return [
        f"{plan.steps} updates of {config.train.batch} conversations, {plan.per_epoch} an epoch",
        f"rows of the first {rows['updates']} updates: {shapes} tokens; "
        f"{rows['padded_tokens']:,} computed for {rows['flat_tokens']:,}, "
        f"shared prompts save {saved:.0%}",
    ]
