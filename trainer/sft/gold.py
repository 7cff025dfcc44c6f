"""Gold repairs as conversations: the prompt of a rollout, answered with the function as it ought
to be.

For tasks about one function (the repair environment). The prompt is the one that the repair agent
makes, to the id; the answer is the gold patch's function in the block that the prompt has opened.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence

import anyio
from unidiff.patch import PatchSet

from patchgym.agent import RepairAgent, RepairConfig, RepairEnvironment
from patchgym.agent.action import Opening
from patchgym.agent.chat import ChatTokenizer
from patchgym.agent.repair.source import find_function
from patchgym.datasets.task import Task
from patchgym.sandbox import Sandbox
from patchgym.trainer.errors import UserError
from patchgym.trainer.formats import SftSequence

from .dataset import Example, Gathered

_CLOSING = "```"


def read_gold(tasks: Sequence[Task], tokenizer: ChatTokenizer, into: Gathered) -> None:
    """Add an example for each task; UserError for one that is not about one function. Blocking."""
    for task in tasks:
        if task.focus is None:
            raise UserError(f"gold: {task.id} is not about one function (it has no focus)")
    openings = anyio.run(_openings, tasks)
    for task, opening in zip(tasks, openings, strict=True):
        answer = gold_function(task, opening.facts["source"])
        if answer is None:
            into.dropped[f"gold {task.id}"] = "its gold patch does not leave the function in place"
            continue
        into.examples.append(
            Example(
                sequences=(_sequence(tokenizer, opening, answer),),
                source=f"gold {task.id}",
                task=task.id,
                exact=False,
            )
        )


def gold_function(task: Task, source: str) -> str | None:
    """The function in focus with the gold patch applied to `source`; None when it is gone."""
    assert task.focus is not None
    changed = patched(source, task.gold_patch, task.focus.path)
    node = find_function(ast.parse(changed), task.focus.function)
    if node is None:
        return None
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
    return "".join(changed.splitlines(keepends=True)[first : node.end_lineno]).rstrip() + "\n"


def patched(source: str, diff: str, path: str) -> str:
    """`source`, the text of `path`, with what a git diff does to it, which may be nothing."""
    lines = source.splitlines(keepends=True)
    file = next((each for each in PatchSet(diff) if each.path == path), None)
    result: list[str] = []
    done = 0
    for hunk in file or ():
        start = hunk.source_start - (1 if hunk.source_length else 0)
        result += lines[done:start]
        result += [line.value for line in hunk if line.is_added or line.is_context]
        done = start + hunk.source_length
    return "".join([*result, *lines[done:]])


def _sequence(tokenizer: ChatTokenizer, opening: Opening, answer: str) -> SftSequence:
    prompt = RepairAgent(tokenizer).open(opening, (), room=1 << 30).tokens
    learned = (*tokenizer.encode(answer + _CLOSING), tokenizer.end_of_turn)
    return SftSequence(
        tokens=(*prompt, *learned),
        loss_mask=(*(False,) * len(prompt), *(True,) * len(learned)),
    )


async def _openings(tasks: Sequence[Task]) -> list[Opening]:
    """What the environment shows of each task; no sandbox is leased for that."""
    config = RepairConfig()
    return [await RepairEnvironment(task, _no_lease, config).open() for task in tasks]


def _no_lease() -> contextlib.AbstractAsyncContextManager[Sandbox]:
    raise AssertionError("an opening needs no sandbox")
