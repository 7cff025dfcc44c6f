"""The reward stage's resources: sandboxes for verdicts, sandboxes for linters, kept scores.

They are the stage's own, so that rollouts, which may hold their sandboxes for long, never keep a
finished one waiting for its reward. The linters' pool is opened only for a reward that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from patchgym.datasets.cache import cache_dir, repositories_dir
from patchgym.datasets.task import Task
from patchgym.rewards import (
    JudgeConfig,
    LintSource,
    RewardConfig,
    Scorer,
    ScoreStore,
    Verdict,
    judge,
)
from patchgym.sandbox import BuildAccess, ImageStore, Pool, ensure_lint_image, lint_spec

from .config import SandboxSection, ScoringSection
from .task_pool import TaskPool

if TYPE_CHECKING:
    from patchgym.datasets.images import TaskImages


def tests_timeout(task: Task, sandbox: SandboxSection) -> float:
    """Seconds for a test run: the task's own limit, else the run's."""
    return task.environment.timeout if task.environment else sandbox.tests_timeout


async def open_scorer(
    reward: RewardConfig,
    opened: TaskPool,
    *,
    sandbox: SandboxSection,
    scoring: ScoringSection,
    stack: AsyncExitStack,
    on_opening: Callable[[str], None] = lambda words: None,
) -> Scorer:
    """A scorer with pools of its own, which close with `stack`; `on_opening` is told of what takes
    long. Raises ImageError and what a pool raises."""
    pool = Pool(opened.spec, size=scoring.slots or scoring.workers)
    await stack.enter_async_context(pool)
    lint = None
    if any("lint" in part.component.needs for part in reward.parts):
        on_opening("preparing the image with linters")
        lint = await open_lint(scoring, stack)
    image = await _image_id(opened.image)
    store = score_store(scoring.cache)
    if store is not None:
        stack.callback(store.close)
    return Scorer(
        reward,
        verdict=partial(_judge, pool, opened.images, sandbox, scoring.reruns),
        lint=lint,
        repositories=repositories_dir(),
        deadline=scoring.deadline,
        store=store,
        context=f"{image} {sandbox.tests_timeout:g} s {scoring.reruns} reruns",
        processes=scoring.processes,
    )


def score_store(name: str) -> ScoreStore | None:
    """Where scores are kept: a folder, `auto` for one in the user's cache, empty for nowhere."""
    if not name:
        return None
    return ScoreStore(cache_dir() / "scores" if name == "auto" else Path(name).expanduser())


async def _image_id(tag: str) -> str:
    """What a tag stands for now: a verdict in one image says nothing of another."""
    from patchgym.sandbox.engine import Engine

    engine = Engine()
    try:
        return await engine.image_id(tag) or tag
    finally:
        engine.close()


async def open_lint(scoring: ScoringSection, stack: AsyncExitStack) -> LintSource:
    """Linters in sandboxes that close with `stack`. Raises ImageError."""
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store:
        image = await ensure_lint_image(store)
    pool = await stack.enter_async_context(Pool(lint_spec(image), size=scoring.lint_slots))
    return LintSource(pool, repositories_dir(), scoring.deadline)


async def _judge(
    pool: Pool,
    images: TaskImages | None,
    sandbox: SandboxSection,
    reruns: int,
    task: Task,
    diff: bytes,
) -> Verdict:
    config = JudgeConfig(
        images=images,
        tests_timeout=tests_timeout(task, sandbox),
        lease_timeout=sandbox.lease_timeout,
        reruns=reruns,
    )
    return await judge(task, diff, pool, config)
