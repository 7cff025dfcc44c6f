"""The rollouts of a group side by side, and what they handed in: each patch once."""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.agent import Turn
from patchgym.trainer.dashboard.runs import OpenRun
from patchgym.trainer.errors import RunError
from patchgym.trainer.rollout_file import StoredRollout
from patchgym.trainer.trajectory_store import TrajectoryStore

from .diff_lines import DiffView, diff_view
from .known_config import known_config
from .siblings import Sibling, Siblings, siblings_of

MOST = 64
"""Rollouts that are shown."""

_LINES = 400  # of each diff
_LARGE = 8 << 20  # bytes of a file that is not read here


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One rollout of the group."""

    sibling: Sibling
    letter: str
    """Names what it handed in; empty when its file can't be read."""
    problem: str
    """Why its file can't be read."""
    tests: tuple[int, int] | None
    """Tests that passed, of how many."""
    turns: tuple[str, ...]
    """What came of each turn: `passed`, `failed`, `none` where no test ran."""
    parts: tuple[tuple[str, float], ...]
    """What each component of the reward adds, those left out that add nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchView:
    """What some rollouts of the group handed in, to the byte."""

    letter: str
    diff: DiffView
    members: tuple[MemberView, ...]
    """Those who did, at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group."""

    siblings: Siblings
    members: tuple[MemberView, ...]
    patches: tuple[PatchView, ...]
    """Different ones, those of most reward first."""
    more: int
    """Rollouts that are not shown."""


def group_view(run: OpenRun, group_id: str) -> GroupView | None:
    """The group called `group_id`; None when nothing is known of it. Blocks."""
    siblings = siblings_of(run.reader, group_id, known_config(run.folder))
    if siblings.row is None and not siblings.members:
        return None
    store = TrajectoryStore(run.folder.trajectories)
    read = [(each, *_read(store, each.row["id"])) for each in siblings.members[:MOST]]
    # Best first, so that the letters say something.
    ranked = sorted(read, key=lambda item: -_known(item[0]))
    patches = dict.fromkeys(stored.trajectory.outcome for _, stored, _ in ranked if stored)
    letters = {patch: _letter(at) for at, patch in enumerate(patches)}
    members = tuple(_member(*item, letters) for item in read)
    return GroupView(
        siblings=siblings,
        members=members,
        patches=tuple(
            PatchView(
                letter=letter,
                diff=diff_view(patch, most=_LINES),
                members=tuple(each for each in members if each.letter == letter),
            )
            for patch, letter in letters.items()
        ),
        more=max(0, len(siblings.members) - MOST),
    )


def _read(store: TrajectoryStore, name: str) -> tuple[StoredRollout | None, str]:
    """A rollout, or why it can't be had."""
    try:
        if store.path(name).is_file() and store.path(name).stat().st_size > _LARGE:
            return None, "its file is too large to be read here; its own page has it"
        return store.read_text(name), ""
    except RunError as error:
        return None, str(error)


def _known(sibling: Sibling) -> float:
    reward = sibling.row["reward"]
    return float("-inf") if reward is None else float(reward)


def _letter(at: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    high, low = divmod(at, 26)
    return (_letter(high - 1) if high else "") + chr(ord("A") + low)


def _member(
    sibling: Sibling, stored: StoredRollout | None, problem: str, letters: dict[bytes, str]
) -> MemberView:
    turns = stored.trajectory.turns if stored else ()
    return MemberView(
        sibling=sibling,
        letter=letters[stored.trajectory.outcome] if stored else "",
        problem=problem,
        tests=_tests(stored),
        turns=tuple(_came_of(turn) for turn in turns[:40]),
        parts=_parts(stored),
    )


def _came_of(turn: Turn) -> str:
    outcomes = {word for each in turn.observations for word in each.outcomes.values()}
    if not outcomes:
        return "none"
    return "passed" if outcomes <= {"passed", "skipped"} else "failed"


def _tests(stored: StoredRollout | None) -> tuple[int, int] | None:
    outcomes = stored.reward.verdict.outcomes if stored and stored.reward else {}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    return (passed, len(outcomes)) if outcomes else None


def _parts(stored: StoredRollout | None) -> tuple[tuple[str, float], ...]:
    if stored is None or stored.reward is None:
        return ()
    return tuple(
        (score.name, score.contribution) for score in stored.reward.scores if score.contribution
    )
