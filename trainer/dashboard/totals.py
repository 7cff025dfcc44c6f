"""What all rollouts of a run came to, by how they ended and by task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from .growing import Growing
from .runs import OpenRun

Key = tuple[str, str, str]
"""Purpose, verdict, stop_reason."""
_BY_END = (
    "SELECT purpose, verdict, stop_reason, COUNT(*) AS n, SUM(sampled_tokens) AS sampled, "
    "SUM(context_tokens) AS context, SUM(seconds) AS seconds FROM rollouts {} "
    "GROUP BY purpose, verdict, stop_reason"
)
_BY_TASK = (
    "SELECT task_id, purpose, COUNT(*) AS n, SUM(verdict = 'resolved') AS resolved, "
    "SUM(verdict != 'unknown') AS known, SUM(reward) AS reward, COUNT(reward) AS rewarded, "
    "SUM(seconds) AS seconds, MAX(finished) AS last FROM rollouts {} GROUP BY task_id, purpose"
)


@dataclass(slots=True)
class Totals:
    """By purpose, verdict and stop_reason."""

    rollouts: Counter[Key] = field(default_factory=Counter)
    sampled: Counter[Key] = field(default_factory=Counter)
    """Tokens."""
    context: Counter[Key] = field(default_factory=Counter)
    """Tokens that were not sampled; nothing under a key whose rollouts don't say."""
    seconds: dict[Key, float] = field(default_factory=dict)
    """From begin to end, summed."""

    def add(self, run: OpenRun, after: int) -> None:
        """As in `growing.Sums`."""
        for row in run.reader.rows(_BY_END.format(_where(after))):
            key = (row["purpose"], row["verdict"], row["stop_reason"])
            self.rollouts[key] += row["n"]
            self.sampled[key] += row["sampled"]
            if row["context"] is not None:
                self.context[key] += row["context"]
            self.seconds[key] = self.seconds.get(key, 0.0) + row["seconds"]

    def count(self) -> int:
        """Rollouts."""
        return self.rollouts.total()

    def copy(self) -> Totals:
        """One that does not grow."""
        return Totals(
            Counter(self.rollouts), Counter(self.sampled), Counter(self.context), dict(self.seconds)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTotal:
    """What the rollouts of one task came to, of one purpose."""

    task_id: str
    purpose: str
    rollouts: int = 0
    resolved: int = 0
    known: int = 0
    """With a verdict."""
    reward_sum: float = 0.0
    rewarded: int = 0
    """With a reward."""
    seconds_sum: float = 0.0
    last: float = 0.0
    """When the last one ended, seconds since the epoch."""

    @property
    def rate(self) -> float | None:
        """Resolved over known."""
        return self.resolved / self.known if self.known else None

    @property
    def reward(self) -> float | None:
        """Their mean."""
        return self.reward_sum / self.rewarded if self.rewarded else None

    @property
    def seconds(self) -> float:
        """Of a rollout, mean."""
        return self.seconds_sum / self.rollouts if self.rollouts else 0.0


@dataclass(slots=True)
class TaskTotals:
    """By task and purpose."""

    tasks: dict[tuple[str, str], TaskTotal] = field(default_factory=dict)

    def add(self, run: OpenRun, after: int) -> None:
        """As in `growing.Sums`."""
        for row in run.reader.rows(_BY_TASK.format(_where(after))):
            key = (row["task_id"], row["purpose"])
            before = self.tasks.get(key) or TaskTotal(task_id=key[0], purpose=key[1])
            self.tasks[key] = replace(
                before,
                rollouts=before.rollouts + row["n"],
                resolved=before.resolved + row["resolved"],
                known=before.known + row["known"],
                reward_sum=before.reward_sum + (row["reward"] or 0.0),
                rewarded=before.rewarded + row["rewarded"],
                seconds_sum=before.seconds_sum + row["seconds"],
                last=max(before.last, row["last"]),
            )

    def count(self) -> int:
        """Rollouts."""
        return sum(each.rollouts for each in self.tasks.values())

    def copy(self) -> TaskTotals:
        """One that does not grow."""
        return TaskTotals(dict(self.tasks))


_totals = Growing(Totals)
_task_totals = Growing(TaskTotals)


def read_totals(run: OpenRun) -> Totals:
    """Sums over all rollouts as of now. Blocking."""
    return _totals.read(run)


def read_task_totals(run: OpenRun) -> list[TaskTotal]:
    """The same by task. Blocking."""
    return list(_task_totals.read(run).tasks.values())


def _where(after: int) -> str:
    return "" if after < 0 else f"WHERE rowid > {after}"
