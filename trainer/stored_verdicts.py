"""A scorer that takes no verdict: those of stored rollouts are reused, linters alone run again."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.task import Task
from patchgym.rewards.base import Reward, Verdict
from patchgym.rewards.config import RewardConfig
from patchgym.rewards.scene import Conduct
from patchgym.sandbox import PatchgymError

from .config import RunConfig
from .trajectory_store import StoredRollout

if TYPE_CHECKING:
    from patchgym.rewards import LintSource

Score = Callable[[Task, StoredRollout], Awaitable[Reward]]
"""The new reward of a stored rollout that has a known verdict."""


class StoredVerdicts:
    """Answers for the tests of stored rollouts, by task and patch, while they are scored."""

    def __init__(self) -> None:
        self._at_hand: dict[tuple[str, bytes], list[Verdict]] = {}

    @contextmanager
    def at_hand(self, task: Task, diff: bytes, verdict: Verdict) -> Iterator[None]:
        """Have this verdict ready inside the block."""
        key = _key(task, diff)
        self._at_hand.setdefault(key, []).append(verdict)
        try:
            yield
        finally:
            self._at_hand[key].remove(verdict)
            if not self._at_hand[key]:
                del self._at_hand[key]

    async def __call__(self, task: Task, diff: bytes) -> Verdict:
        """The verdict at hand. Raises PatchgymError when there is none."""
        found = self._at_hand.get(_key(task, diff))
        if not found:
            raise PatchgymError(f"{task.id}: no verdict of this patch is stored")
        return found[0]


def _key(task: Task, diff: bytes) -> tuple[str, bytes]:
    return task.id, hashlib.sha256(diff).digest()


@asynccontextmanager
async def open_score(
    reward: RewardConfig, config: RunConfig, *, on_opening: Callable[[str], None]
) -> AsyncIterator[Score]:
    """A scorer over stored verdicts; it has sandboxes for linters if the reward needs them."""
    from patchgym.rewards import Scorer

    from .scoring import open_lint

    verdicts = StoredVerdicts()
    async with AsyncExitStack() as stack:
        lint: LintSource | None = None
        if any("lint" in part.component.needs for part in reward.parts):
            on_opening("preparing the image with linters")
            lint = await open_lint(config.scoring, stack)
        scorer = Scorer(
            reward,
            verdict=verdicts,
            lint=lint,
            repositories=repositories_dir(),
            deadline=config.scoring.deadline,
            processes=config.scoring.processes,
        )

        async def score(task: Task, stored: StoredRollout) -> Reward:
            assert stored.reward is not None
            diff = stored.trajectory.outcome
            with verdicts.at_hand(task, diff, stored.reward.verdict):
                return await scorer.score(task, diff, Conduct.of(stored.trajectory))

        yield score
