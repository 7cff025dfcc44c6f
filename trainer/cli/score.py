"""`patchgym score`: the reward of one patch on one task, explained component by component."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread
from rich.console import Console

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.rewards import Change, Reward, RewardConfig
from patchgym.trainer.config import SandboxSection, ScoringSection
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_pool import open_task_pool
from patchgym.trainer.task_sets import load_task_set

from .main import parser
from .number_words import seconds
from .reward_file import read_reward
from .tasks.show import find_task


def run(words: Sequence[str]) -> int:
    """Entry point; exit code 1 when the task is not resolved."""
    arguments = parser("score")
    arguments.add_argument("--task", required=True, metavar="FILE#ID", help="or bundled:heldout#ID")
    arguments.add_argument("--patch", required=True, help="a diff's file, `-`, `gold` or `empty`")
    arguments.add_argument(
        "--rewards", type=Path, metavar="FILE", help="TOML with a [reward] section"
    )
    arguments.add_argument(
        "--all", action="store_true", help="measure every built-in component, counted or not"
    )
    arguments.add_argument("--image", default="auto", help="of tasks that name none")
    arguments.add_argument("--reruns", type=int, default=1, help="of failing tests (default 1)")
    arguments.add_argument(
        "--deadline", type=seconds, default=1800.0, help="seconds for the verdict (default 1800)"
    )
    arguments.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    reward = read_reward(known.rewards, everything=known.all or known.rewards is None)
    task = _task(known.task)
    scoring = ScoringSection(
        workers=1, deadline=known.deadline, reruns=known.reruns, cache="", slots=1
    )
    patch = _patch(known.patch, task)
    sandbox = SandboxSection(image=known.image, slots=1)
    change, found = anyio.run(_score, task, patch, reward, sandbox, scoring)
    _show(task, change, reward, found, as_json=known.json)
    return 0 if found.resolved else 1


def _show(
    task: Task, change: Change, config: RewardConfig, reward: Reward, *, as_json: bool
) -> None:
    from .score_view import print_score, score_record

    if as_json:
        print(json.dumps(score_record(task, change, config, reward), indent=2))
    else:
        print_score(task, change, config, reward, Console())


def _task(name: str) -> Task:
    file, _, task_id = name.rpartition("#")
    if not file:
        file, task_id = name, ""
    tasks = load_task_set(file)
    if not task_id and len(tasks) == 1:
        return tasks[0]
    if not task_id:
        raise UserError(
            f"--task {name}: it holds {len(tasks)} tasks; name one: {file}#{tasks[0].id}"
        )
    return find_task(tasks, task_id)


def _patch(name: str, task: Task) -> bytes:
    if name == "gold":
        return task.gold_patch.encode()
    if name == "empty":
        return b""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"--patch {name}: {error.strerror}") from None


async def _score(
    task: Task,
    patch: bytes,
    reward: RewardConfig,
    sandbox: SandboxSection,
    scoring: ScoringSection,
) -> tuple[Change, Reward]:
    from patchgym.rewards.changes import read_change
    from patchgym.trainer.scoring import open_scorer

    folder = await anyio.to_thread.run_sync(materialize, task, repositories_dir())
    change = await anyio.to_thread.run_sync(read_change, task, patch, folder)
    async with AsyncExitStack() as stack:
        pool = open_task_pool([task], image=sandbox.image, size=1)
        scorer = await open_scorer(
            reward,
            await stack.enter_async_context(pool),
            sandbox=sandbox,
            scoring=scoring,
            stack=stack,
            on_opening=_tell,
        )
        return change, await scorer.score(task, patch)


def _tell(words: str) -> None:
    print(words, file=sys.stderr)
