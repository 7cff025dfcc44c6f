"""What is known of each rollout of an evaluation, read from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchgym.agent import StopReason, Trajectory, rule_for
from patchgym.rewards import Verdict
from patchgym.trainer.errors import RunError
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.policies import TokenUse
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import StoredRollout, TrajectoryStore

from .source import sample_id

PURPOSE = "policy"
"""What the ledger calls the rollouts of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One rollout that is over, scored or not."""

    task_id: str
    number: int
    """Counts the samples of a task, from 0."""
    rollout_id: str
    stop_reason: StopReason
    error: str
    verdict: Verdict
    use: TokenUse
    """Tokens: every turn's context in full, as a server without a cache would count them."""
    turns: int
    seconds: float
    """Wall seconds of the rollout, waits included; of its last attempt."""
    patch: bytes

    @property
    def known(self) -> bool:
        """There is a verdict; without, nothing is said of the policy."""
        return self.verdict.status != "unknown"

    @property
    def resolved(self) -> bool:
        """The verdict is that all tests pass."""
        return self.verdict.status == "resolved"


def own_doing(trajectory: Trajectory) -> bool:
    """The rollout ended by what the policy did or took too long for, and is to be judged."""
    reason = trajectory.stop_reason
    return reason != "straggler" and rule_for(reason).failure is None


def token_use(trajectory: Trajectory) -> TokenUse:
    """Tokens by the ids: each turn's whole context, and what was sampled."""
    prompt = history = 0
    for turn in trajectory.turns:
        history = len(turn.context) + (0 if turn.restarts else history)
        prompt += history
        history += len(turn.completion.tokens)
    return TokenUse(prompt=prompt, sampled=trajectory.sampled_tokens, calls=len(trajectory.turns))


def sample_of(stored: StoredRollout, number: int, use: TokenUse | None = None) -> Sample:
    """The sample that a stored rollout is; `use` where an endpoint counted."""
    trajectory, reward = stored.trajectory, stored.reward
    unknown = Verdict(status="unknown", evidence="infra", detail=trajectory.error)
    return Sample(
        task_id=trajectory.task_id,
        number=number,
        rollout_id=trajectory.rollout_id,
        stop_reason=trajectory.stop_reason,
        error=trajectory.error,
        verdict=reward.verdict if reward is not None else unknown,
        use=use or token_use(trajectory),
        turns=len(trajectory.turns),
        seconds=trajectory.seconds,
        patch=trajectory.outcome,
    )


def read_samples(folder: RunFolder, task_ids: Sequence[str], count: int) -> Iterator[Sample]:
    """The samples of these tasks that are there, in order. Blocking; damaged ones are left out."""
    store = TrajectoryStore(folder.trajectories)
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows("SELECT key FROM meta WHERE key LIKE 'use/%'")
        uses = {row["key"].removeprefix("use/"): reader.meta(row["key"]) for row in rows}
    for task_id in task_ids:
        for number in range(count):
            name = sample_id(task_id, number)
            if not store.path(name).exists():
                continue
            try:
                stored = store.read(name)
            except RunError:
                continue  # a damaged file is a rollout that is made again
            use = TokenUse(**uses[name]) if name in uses else None
            yield sample_of(stored, number, use)
