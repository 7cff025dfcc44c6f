"""Rollouts under way in words: whom the learner waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flying:
    """A rollout under way, as the watchdog and the live view tell of it."""

    task_id: str
    stage: str
    seconds: float
    """In that stage."""
    rollout_id: str = ""
    sandbox: str = ""
    """Its container, where it has one."""


def wait_line(doing: str, seconds: float, flying: Sequence[Flying], *, most: int = 3) -> str:
    """What the learner waits for, in one line.

    `learner waits 41 s for groups: 3 rollouts of calc/add in tool run_tests since 38 s (sandbox
    7f3a90); 2 rollouts of calc/mul in sampling since 4 s; and 9 more`
    """
    begun = f"waits {seconds:.0f} s for groups" if doing == "waiting" else doing
    since = "" if doing == "waiting" else f" since {seconds:.0f} s"
    return f"learner {begun}{since}: {flying_words(flying, most=most)}"


def flying_words(flying: Sequence[Flying], *, most: int = 3) -> str:
    """Rollouts under way by task and stage, the longest wait first; at most `most` of those."""
    together: dict[tuple[str, str], list[Flying]] = {}
    for each in sorted(flying, key=lambda each: -each.seconds):
        together.setdefault((each.task_id, each.stage), []).append(each)
    parts = [_together(members) for members in list(together.values())[:most]]
    left = sum(len(members) for members in list(together.values())[most:])
    parts += [f"and {left} more"] if left else []
    return "; ".join(parts) or "no rollout in flight"


def _together(members: Sequence[Flying]) -> str:
    """Rollouts of one task in one stage, the longest wait first."""
    first, count = members[0], len(members)
    words = f"{count} rollout{'s' * (count > 1)} of {first.task_id} in {first.stage}"
    words += f" since {first.seconds:.0f} s"
    sandboxes = [each.sandbox for each in members if each.sandbox]
    return f"{words} (sandbox {', '.join(sandboxes[:2])})" if sandboxes else words
