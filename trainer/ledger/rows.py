"""The rows of a finished rollout: itself, its turns, its scores."""

from __future__ import annotations

from collections.abc import Iterator

from patchgym.agent import Trajectory, Turn
from patchgym.rewards import Reward

from .writer import Statement

_ROLLOUT = (
    "INSERT OR REPLACE INTO rollouts (id, purpose, group_id, task_id, member, stop_reason, error, "
    "reward, verdict, turns, sampled_tokens, policy_version, seconds, detail, finished, "
    "newest_version, context_tokens, sample_seconds, tool_seconds, reward_seconds, evidence, "
    "tampering) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_TURN = "INSERT INTO turns VALUES (?,?,?,?,?,?,?,?,?,?)"
# A reward may name a component twice; its row is the last one's.
_SCORE = "INSERT OR REPLACE INTO scores VALUES (?,?,?,?,?,?,?,?)"


def newest_version(trajectory: Trajectory) -> int:
    """The newest policy version that sampled a token of it; -1 without turns."""
    versions = [turn.completion.policy_version for turn in trajectory.turns]
    versions += [span.policy_version for turn in trajectory.turns for span in turn.completion.spans]
    return max(versions, default=-1)


def rollout_rows(
    purpose: str,
    group_id: str,
    task_id: str,
    member: int,
    trajectory: Trajectory,
    reward: Reward,
    *,
    finished: float,
) -> Iterator[Statement]:
    """Statements that put a rollout on record, in place of an earlier one of its name."""
    name, verdict = trajectory.rollout_id, reward.verdict
    yield (
        _ROLLOUT,
        (
            name, purpose, group_id, task_id, member, trajectory.stop_reason,
            _text(trajectory.error), reward.total, verdict.status,
            len(trajectory.turns), trajectory.sampled_tokens,
            trajectory.oldest_version, trajectory.seconds, _text(verdict.detail), finished,
            newest_version(trajectory), sum(len(turn.context) for turn in trajectory.turns),
            sum(turn.sample_seconds for turn in trajectory.turns),
            sum(turn.tool_seconds for turn in trajectory.turns),
            reward.seconds, _text(verdict.evidence), len(verdict.tampering),
        ),
    )  # fmt: skip
    yield "DELETE FROM turns WHERE rollout_id = ?", (name,)
    yield "DELETE FROM scores WHERE rollout_id = ?", (name,)
    for number, turn in enumerate(trajectory.turns):
        yield _TURN, _turn(name, number, turn)
    for score in reward.scores:
        yield (
            _SCORE,
            (name, score.name, score.value, score.weight, score.status, score.seconds,
             _text(score.detail), score.version),
        )  # fmt: skip


def _turn(name: str, number: int, turn: Turn) -> tuple[object, ...]:
    return (
        name,
        number,
        turn.completion.policy_version,
        len(turn.context),
        len(turn.completion.tokens),
        turn.completion.finish,
        _text(" ".join(call.name for call in turn.calls)),
        " ".join(observation.kind for observation in turn.observations),
        turn.sample_seconds,
        turn.tool_seconds,
    )


def _text(words: str) -> str:
    """`words` as SQLite can hold them: halves of surrogate pairs become their escapes."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")
