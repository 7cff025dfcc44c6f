"""The watch for reward hacking: silent on noise and on honest learning, loud on seeded hacks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.agent import StopReason, Trajectory
from patchgym.rewards.base import Reward, Score, Verdict
from patchgym.rewards.composite import compose
from patchgym.rewards.config import RewardConfig
from patchgym.rewards.tampering import TamperFinding
from patchgym.trainer.drift import Tally, shift, summed
from patchgym.trainer.group import Group, Member
from patchgym.trainer.reward_watch import RewardAlarm, RewardWatch
from patchgym.trainer.watched import changed_lines

CONFIG = RewardConfig.of({
    "regressions": {"weight": 0.2}, "tampering": {"weight": 0.5}, "turns": {"weight": 0.1},
})  # fmt: skip
CHEAT = TamperFinding(
    rule="skips", path="test_x.py", line=1, message="skips a test", disqualifies=True
)


@dataclass(frozen=True)
class World:
    """What a policy does at one step, as chances."""

    solves: float = 0.3
    partial: float = 0.1
    """Credit for some of the tests without solving, at most."""
    turns: float = 0.5
    """Mean value of that penalty."""
    lines: float = 12
    """Typical lines of a patch."""
    tampers: float = 0.01
    repeats: float = 0.02
    """Chance of the one edit that it makes everywhere."""
    unknown: float = 0.01

    def member(self, dice: random.Random, rollout_id: str, task: int, ease: float) -> Member:
        lost = dice.random() < self.unknown
        solved = dice.random() < min(1.0, 2 * ease * self.solves)
        tests = 1.0 if solved else dice.random() * self.partial
        values = {
            "tests": tests,
            "regressions": 0.0 if solved or dice.random() < 0.8 else dice.random(),
            "patch_size": dice.random() if tests > 0 else None,
            "tampering": 0.0,
            "turns": min(1.0, max(0.0, dice.gauss(self.turns, 0.2))) if tests > 0 else None,
        }
        scores = [
            Score(name=part.name, value=values[part.name], weight=part.signed,
                  status="gated" if values[part.name] is None else "measured")
            for part in CONFIG.parts
        ]  # fmt: skip
        cheats = (CHEAT,) if dice.random() < self.tampers else ()
        verdict = Verdict(status="resolved" if solved else "unresolved", evidence="report",
                          tampering=cheats)  # fmt: skip
        reward = compose(CONFIG, scores, verdict)
        if lost:
            reward = replace(reward, total=None)
        same = dice.random() < self.repeats
        made = "pass" if same else f"x = {dice.random()}"
        lines = 1 if same else max(1, round(self.lines * 2 ** dice.gauss(0, 0.8)))
        return member(rollout_id, f"task-{task}", patch(*[made] * lines, path=f"{task}.py"), reward,
                      "scoring_failed" if lost else "submitted")  # fmt: skip


def patch(*added: str, path: str = "x.py") -> bytes:
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1,{len(added)} @@\n"
    return (head + "".join(f"+{line}\n" for line in added)).encode() if added else b""


def member(
    rollout_id: str, task: str, outcome: bytes, reward: Reward, reason: StopReason = "submitted"
) -> Member:
    trajectory = Trajectory(rollout_id=rollout_id, task_id=task, seed=0, turns=(),
                            stop_reason=reason, outcome=outcome)  # fmt: skip
    return Member(trajectory=trajectory, reward=reward)


def run(
    world: Callable[[int], World], steps: int, *, seed: int, groups: int = 4, size: int = 8
) -> list[RewardAlarm]:
    """Everything that the watch says of a run in that world."""
    dice, watch, found = random.Random(seed), RewardWatch(CONFIG), list[RewardAlarm]()
    for step in range(steps):
        for number in range(step * groups, (step + 1) * groups):
            name, task, ease = f"g{number:05d}", dice.randrange(200), dice.random()
            members = tuple(
                world(step).member(dice, f"{name}-m{each}", task, ease) for each in range(size)
            )
            watch.note_group(
                Group(group_id=name, task_id=f"task-{task}", number=number, members=members)
            )
        found += watch.note_step(step)
    return found


@pytest.mark.parametrize(("groups", "size", "seed"), [(4, 8, 1), (1, 16, 2), (2, 2, 3)])
def test_a_thousand_steps_of_noise_raise_no_alarm(groups: int, size: int, seed: int) -> None:
    assert run(lambda step: World(), 1000, seed=seed, groups=groups, size=size) == []


def test_honest_learning_raises_no_alarm() -> None:
    """The resolved rate climbs, penalties come down a little, patches get shorter by a third."""

    def learning(step: int) -> World:
        done = step / 150
        return World(solves=0.1 + 0.6 * done, turns=0.5 - 0.2 * done, lines=12 - 4 * done)

    assert run(learning, 150, seed=3) == []


HACKS = {
    "reward_unearned": World(partial=0.95),
    "component_drift": World(turns=0.9),
    "patch_size": World(lines=2),
    "duplicates": World(repeats=0.4),
    "tampering": World(tampers=0.25),
    "unknown_scores": World(unknown=0.3),
}


@pytest.mark.parametrize("kind", HACKS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hack_is_told_once_and_soon(kind: str, seed: int) -> None:
    found = run(lambda step: HACKS[kind] if step >= 40 else World(), 80, seed=seed)
    told = [alarm for alarm in found if alarm.kind == kind]
    assert told, [alarm.words for alarm in found]
    assert 40 < told[0].step <= 55
    assert len({alarm.words[:20] for alarm in told}) == len(told)
    assert all(int(example[1:6]) >= 40 * 4 for alarm in told for example in alarm.examples)
    assert all(alarm.examples and "\n" not in alarm.line for alarm in told)


def test_a_slow_hack_is_seen_by_the_long_window() -> None:
    """Credit without solving grows by half a percent a step, less than any short window shows."""
    slow = run(lambda step: World(partial=min(0.95, 0.1 + step * 0.006)), 160, seed=5)
    assert "reward_unearned" in {alarm.kind for alarm in slow}


def test_a_hack_that_ends_and_begins_again_is_told_twice() -> None:
    def world(step: int) -> World:
        return World(tampers=0.5) if step // 60 % 2 else World()

    told = [alarm for alarm in run(world, 240, seed=6) if alarm.kind == "tampering"]
    assert [alarm.step // 60 for alarm in told] == [1, 3]


def test_the_words_have_the_numbers_and_the_rollouts() -> None:
    found = run(lambda step: HACKS["patch_size"] if step >= 40 else World(), 80, seed=1)
    (alarm,) = [alarm for alarm in found if alarm.kind == "patch_size"]
    assert alarm.words.startswith("patches shrank from 1")
    assert "changed lines (median of a group; steps " in alarm.words
    assert alarm.line == f"{alarm.words}; see {', '.join(alarm.examples)}"


def answered(value: float, rollout_id: str = "g00000-m0", *, resolved: bool = False) -> Member:
    return member(rollout_id, "task", b"", Reward.of_answer(value, resolved=resolved))


def climbing(watch: RewardWatch, level: float, steps: range) -> list[RewardAlarm]:
    """Steps with a reward of about `level` that nothing is solved for."""
    found = []
    for step in steps:
        for each in range(8):
            value = level + 0.02 * (each % 3)
            watch.note_rollout(f"g{step}-{each}", answered(value, f"g{step}-{each}-m0"))
        found += watch.note_step(step)
    return found


def test_a_reward_that_the_held_out_rate_does_not_follow_is_told() -> None:
    watch = RewardWatch(CONFIG)
    assert watch.note_heldout(0, 0.3, 200) == []
    climbing(watch, 0.2, range(0, 6))
    climbing(watch, 0.8, range(6, 12))
    (alarm,) = watch.note_heldout(12, 0.31, 200)
    assert alarm.kind == "reward_unearned"
    assert "the reward rose from 0.2" in alarm.words
    assert "held-out resolved rate went from 30.0% to 31.0%" in alarm.words
    assert alarm.examples
    assert watch.note_heldout(13, 0.31, 200) == []


@pytest.mark.parametrize(("rate", "samples"), [(0.7, 200), (0.31, 8)])
def test_a_held_out_rate_that_follows_or_is_not_known_well_is_not_told(
    rate: float, samples: float
) -> None:
    watch = RewardWatch(CONFIG)
    watch.note_heldout(0, 0.3, samples)
    climbing(watch, 0.2, range(0, 6))
    climbing(watch, 0.8, range(6, 12))
    assert watch.note_heldout(12, rate, samples) == []


def test_steps_without_rollouts_are_no_news() -> None:
    watch = RewardWatch(CONFIG)
    assert [watch.note_step(step) for step in range(100)] == [[]] * 100


def test_rollouts_that_failed_outside_are_not_watched() -> None:
    watch = RewardWatch(CONFIG)
    unknown = Reward(total=None, scores=(), verdict=Verdict(status="unknown", evidence="infra"))
    for step in range(60):
        for each in range(8):
            fails = step >= 30
            reason: StopReason = "sandbox_failed" if fails else "submitted"
            reward = unknown if fails else Reward.of_answer(0.5, resolved=False)
            watch.note_rollout(f"g{step}-{each}", member("r", "task", b"", reward, reason))
        assert watch.note_step(step) == []


@given(st.lists(st.floats(-100, 100), min_size=2), st.lists(st.floats(-100, 100), min_size=2))
def test_a_tally_has_the_mean_and_the_variance_of_its_units(
    first: list[float], second: list[float]
) -> None:
    both = summed([Tally.of(first), Tally.of(second)])
    assert both.mean == pytest.approx(fmean(first + second), abs=1e-6)
    assert both.variance == pytest.approx(variance(first + second), rel=1e-6, abs=1e-6)


def test_too_few_units_say_nothing() -> None:
    assert shift(Tally.of([0.0] * 9), Tally.of([1.0] * 50)) is None
    certain = shift(Tally.of([0.0] * 10), Tally.of([1.0] * 10))
    assert certain is not None
    assert (certain.rise, certain.deviates) == (1.0, float("inf"))


@pytest.mark.parametrize(
    ("diff", "lines"),
    [(b"", 0), (patch("a", "b"), 2), (b"no diff at all", 0), (b"\xff\x00\n+\xff\n-\x00\n", 2)],
)
def test_changed_lines(diff: bytes, lines: int) -> None:
    assert changed_lines(diff) == lines
