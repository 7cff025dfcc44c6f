"""The watch for reward hacking: does what is rewarded still go along with what is wanted?

    note_rollout, note_group --> the present step --note_step--> windows of steps --> RewardAlarm
    note_heldout ----------------------------------------------> against the reward's rise

The last 6 steps are compared with up to 24 before them, and the last 24 with up to 96. An alarm
needs a move that is both large and certain (`drift`); it is given once, and again only after the
move has gone. Pure: it keeps sums and a few rollout ids for each step, and does no I/O.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from patchgym.rewards.config import RewardConfig

from .drift import Tally, shift, summed
from .group import Group, Member
from .reward_signs import EARNED, LEAST_REWARD, AlarmKind, Sign, View, signs, sure, worth_of
from .watched import Observed, StepRecord, observe, record_of

WINDOWS = (6, 24)
"""Steps in the window that is looked at; up to four times as many before it are the measure."""
_REWARD = ("reward", "")
_HELD_OUT: tuple[AlarmKind, str] = ("reward_unearned", "held out")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAlarm:
    """Something that a person should look at."""

    kind: AlarmKind
    step: int
    """The last step of the window, or that of the held-out evaluation."""
    words: str
    """One line with the numbers."""
    examples: tuple[str, ...] = ()
    """Ids of rollouts to look at, the plainest first."""

    @property
    def line(self) -> str:
        """The words, and where to look."""
        return f"{self.words}; see {', '.join(self.examples)}" if self.examples else self.words


@dataclass(frozen=True, slots=True)
class _Measured:
    """A held-out evaluation, and the reward in the steps next to it."""

    step: int
    rate: float
    samples: float
    nearby: list[Tally]

    @property
    def variance(self) -> float:
        """Of the rate; half a success and half a failure more keep 0 and 1 from being certain."""
        rate = (self.rate * self.samples + 0.5) / (self.samples + 1)
        return rate * (1 - rate) / (self.samples + 1)


class RewardWatch:
    """One per run. Steps count from 0, as the learner's do; words say them from 1."""

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._worth = worth_of(config)
        self._present: list[Observed] = []
        self._steps: deque[StepRecord] = deque(maxlen=5 * max(WINDOWS))
        self._raised: set[tuple[AlarmKind, str]] = set()
        self._measured: deque[_Measured] = deque(maxlen=16)

    def note_rollout(self, group_id: str, member: Member) -> None:
        """A scored rollout of the present step, whatever becomes of its group."""
        self._present.append(observe(group_id, member, self._worth))

    def note_group(self, group: Group) -> None:
        """All members of a whole group; instead of `note_rollout`, not beside it."""
        for member in group.members:
            self.note_rollout(group.group_id, member)

    def note_step(self, step: int) -> list[RewardAlarm]:
        """The step is finished: what is new to say."""
        record = record_of(step, self._present, list(self._steps)[1 - WINDOWS[0] :])
        self._present = []
        self._steps.append(record)
        if self._measured and len(self._measured[-1].nearby) < WINDOWS[0]:
            self._measured[-1].nearby.append(record.tallies.get(_REWARD, Tally()))
        return [_alarm(sign, step) for sign in self._new()]

    def note_heldout(self, step: int, resolved_rate: float, samples: float) -> list[RewardAlarm]:
        """A held-out evaluation of so many effective samples: did it rise as the reward did?"""
        nearby = [each.tallies.get(_REWARD, Tally()) for each in self._steps]
        now = _Measured(step, resolved_rate, samples, nearby[-WINDOWS[0] :])
        found = [sign for earlier in self._measured if (sign := self._against(earlier, now))]
        self._measured.append(now)
        new = bool(found) and _HELD_OUT not in self._raised
        self._raised = self._raised | {_HELD_OUT} if found else self._raised - {_HELD_OUT}
        return [_alarm(found[0], step)] if new else []

    def _new(self) -> Iterator[Sign]:
        """What holds for sure and was not told; what holds no more, not even half, is let go."""
        views = list(self._views())
        certain = {s.key: s for view in views for s in signs(self._config, view, 1.0)}
        perhaps = {s.key for view in views for s in signs(self._config, view, 0.5)}
        perhaps.add(_HELD_OUT)
        new = [sign for key, sign in certain.items() if key not in self._raised]
        self._raised = (self._raised & perhaps) | set(certain)
        return iter(new)

    def _views(self) -> Iterator[View]:
        steps = list(self._steps)
        for size in WINDOWS:
            before = steps[-5 * size : -size]
            if len(before) >= size:
                yield View(before, steps[-size:])

    def _against(self, earlier: _Measured, now: _Measured) -> Sign | None:
        """Whether the reward rose between two evaluations, and the held-out rate did not."""
        reward = shift(summed(earlier.nearby), summed(now.nearby))
        if reward is None or not sure(reward, LEAST_REWARD * self._worth):
            return None
        error = math.sqrt(earlier.variance + now.variance)
        if now.rate - earlier.rate + 1.645 * error > EARNED * reward.rise / self._worth:
            return None
        return Sign(
            *_HELD_OUT,
            f"the reward rose from {reward.before:.3f} to {reward.now:.3f}, the held-out resolved "
            f"rate went from {earlier.rate:.1%} to {now.rate:.1%} (steps {earlier.step} to "
            f"{now.step}; its standard error is {error:.1%})",
            View((), list(self._steps)[-WINDOWS[0] :]).examples("unearned"),
        )


def _alarm(sign: Sign, step: int) -> RewardAlarm:
    return RewardAlarm(kind=sign.kind, step=step, words=sign.words, examples=sign.examples)
