"""`patchgym score`: the reward of one patch on one task, in a fresh sandbox."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from rich.console import Console

from patchgym.datasets.task import Task
from patchgym.rewards import JudgeConfig, Reward, RewardConfig, compose, judge
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_pool import open_task_pool
from patchgym.trainer.task_sets import load_task_set
from patchgym.trainer.verdict_words import remarks

from .main import parser
from .tasks.show import find_task


def run(words: Sequence[str]) -> int:
    """Entry point; exit code 1 when the task is not resolved."""
    arguments = parser("score")
    arguments.add_argument("--task", required=True, metavar="FILE#ID", help="or bundled:heldout#ID")
    arguments.add_argument("--patch", required=True, help="a diff's file, `-`, `gold` or `empty`")
    arguments.add_argument("--image", default="auto")
    arguments.add_argument("--reruns", type=int, default=1, help="of failing tests (default 1)")
    arguments.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    task = _task(known.task)
    reward = anyio.run(_score, task, _patch(known.patch, task), known.image, known.reruns)
    if known.json:
        print(json.dumps(dataclasses.asdict(reward), indent=2, default=dict))
    else:
        _print(task, reward, Console())
    return 0 if reward.resolved else 1


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


async def _score(task: Task, patch: bytes, image: str, reruns: int) -> Reward:
    async with open_task_pool([task], image=image, size=1) as opened:
        config = JudgeConfig(images=opened.images, reruns=reruns)
        verdict = await judge(task, patch, opened.pool, config)
    return compose(task, patch, verdict, RewardConfig())


def _print(task: Task, reward: Reward, console: Console) -> None:
    verdict = reward.verdict
    total = "unknown" if reward.total is None else f"{reward.total:.3f}"
    console.print(f"{task.id}: {verdict.status}, reward {total}", highlight=False)
    for score in reward.scores:
        console.print(
            f"  {score.name} {score.value:.3f} x {score.weight:g}", highlight=False, markup=False
        )
    if verdict.detail:
        console.print(f"  {verdict.detail}", markup=False, highlight=False, soft_wrap=True)
    for line in remarks(verdict):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    for test, outcome in verdict.outcomes.items():
        message = verdict.messages.get(test, "")
        console.print(
            f"  {outcome:<8} {test}  {message}", markup=False, highlight=False, soft_wrap=True
        )
