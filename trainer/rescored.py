"""Two rewards for the same rollouts, side by side: how far they agree, and who moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from patchgym.rewards.base import Reward

from .ranks import kendall, spearman

_SAME = 1e-6
"""Totals that differ by less are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One rollout under both rewards."""

    rollout_id: str
    group_id: str
    task_id: str
    purpose: str
    """`train`, or the name of an evaluation."""
    before: float | None
    """The stored total; None where it is unknown."""
    after: float | None
    """The new one, likewise."""
    moves: Mapping[str, float] = field(default_factory=dict)
    """What each component adds now less what it added, for those that differ."""
    values: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Each component's value before and now; None where it was not measured."""
    detail: str = ""
    """Why the new total is unknown."""

    @classmethod
    def of(cls, before: Reward, after: Reward, **names: str) -> Rescored:
        """`names` are rollout_id, group_id, task_id and purpose."""
        both = list(dict.fromkeys(score.name for score in (*before.scores, *after.scores)))
        pairs = {name: (before.score(name), after.score(name)) for name in both}
        added = {
            name: (new.contribution if new else 0.0) - (old.contribution if old else 0.0)
            for name, (old, new) in pairs.items()
        }
        lost = [score for score in after.scores if score.status == "unknown"]
        return cls(
            **names,
            before=before.total,
            after=after.total,
            moves={name: move for name, move in added.items() if abs(move) > _SAME},
            values={name: (old.value if old else None, new.value if new else None)
                    for name, (old, new) in pairs.items()},
            detail="; ".join(f"{score.name}: {score.detail}" for score in lost),
        )  # fmt: skip

    @property
    def change(self) -> float | None:
        """New total less old; None where one is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def moved(self) -> bool:
        """The totals are not the same, or only one of them is known."""
        if self.change is None:
            return (self.before is None) != (self.after is None)
        return abs(self.change) > _SAME

    @property
    def cause(self) -> str:
        """The component that moved it most; empty where none did."""
        return max(self.moves, key=lambda name: abs(self.moves[name]), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentChange:
    """A component's values over all rollouts."""

    name: str
    before: float | None
    """Mean of those that were measured; None without any."""
    after: float | None
    measured_before: int
    measured_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a change of reward comes to."""

    rollouts: int
    """With a total under both."""
    spearman: float | None
    """Rank correlation over all; None where one of the rewards has no spread."""
    kendall: float | None
    groups: int
    """Groups that have a spread under both rewards."""
    spearman_in_groups: float | None
    """Mean over those groups; None without any."""
    kendall_in_groups: float | None
    reversed: int
    """Rollouts whose advantage, the total less their group's mean, changes sign."""
    unsigned: int
    """Those that have an advantage under one reward and none under the other."""
    gained: int
    """Groups that have a spread only under the new reward."""
    lost: int
    """Groups that had one only under the old."""
    mean_before: float | None
    mean_after: float | None
    moved: int
    """Rollouts whose total changed."""
    components: tuple[ComponentChange, ...] = ()


def compare(rows: Sequence[Rescored]) -> Agreement:
    """The comparison; rollouts with an unknown total count in `moved` alone."""
    before, after = _totals(rows)
    groups = _groups(rows)
    spread = [(old, new) for old, new in groups if _has_spread(old) and _has_spread(new)]
    signs = [pair for old, new in groups
             for pair in zip(_signs(old), _signs(new), strict=True)]  # fmt: skip
    return Agreement(
        rollouts=len(before),
        spearman=spearman(before, after),
        kendall=kendall(before, after),
        groups=len(spread),
        spearman_in_groups=_mean(spearman, spread),
        kendall_in_groups=_mean(kendall, spread),
        reversed=sum(old * new < 0 for old, new in signs),
        unsigned=sum((old == 0) != (new == 0) for old, new in signs),
        gained=sum(_has_spread(new) and not _has_spread(old) for old, new in groups),
        lost=sum(_has_spread(old) and not _has_spread(new) for old, new in groups),
        mean_before=fmean(before) if before else None,
        mean_after=fmean(after) if after else None,
        moved=sum(row.moved for row in rows),
        components=tuple(_components(rows)),
    )


def most_moved(rows: Iterable[Rescored], count: int) -> list[Rescored]:
    """Those whose known totals changed most, first."""
    moved = [row for row in rows if row.moved and row.change is not None]
    moved.sort(key=lambda row: (-abs(row.change or 0.0), row.rollout_id))
    return moved[:count]


def _totals(rows: Iterable[Rescored]) -> tuple[list[float], list[float]]:
    known = [(row.before, row.after) for row in rows]
    pairs = [(old, new) for old, new in known if old is not None and new is not None]
    return [old for old, _ in pairs], [new for _, new in pairs]


def _groups(rows: Iterable[Rescored]) -> list[tuple[list[float], list[float]]]:
    """The totals of each group with two members or more that have both."""
    by_group: dict[tuple[str, str], list[Rescored]] = defaultdict(list)
    for row in rows:
        by_group[row.purpose, row.group_id].append(row)
    found = (_totals(members) for members in by_group.values())
    return [pair for pair in found if len(pair[0]) > 1]


def _has_spread(totals: Sequence[float]) -> bool:
    return max(totals) - min(totals) > _SAME


def _signs(totals: Sequence[float]) -> list[int]:
    mean = fmean(totals)
    return [(total > mean + _SAME) - (total < mean - _SAME) for total in totals]


def _mean(
    measure: Callable[[Sequence[float], Sequence[float]], float | None],
    groups: Iterable[tuple[Sequence[float], Sequence[float]]],
) -> float | None:
    found = [value for pair in groups if (value := measure(*pair)) is not None]
    return fmean(found) if found else None


def _components(rows: Iterable[Rescored]) -> Iterable[ComponentChange]:
    seen: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        for name, values in row.values.items():
            for kept, value in zip(seen.setdefault(name, ([], [])), values, strict=True):
                kept += [] if value is None else [value]
    for name, (old, new) in seen.items():
        yield ComponentChange(
            name=name,
            before=fmean(old) if old else None,
            after=fmean(new) if new else None,
            measured_before=len(old),
            measured_after=len(new),
        )


def row_record(row: Rescored, after: Reward, plain: Callable[[object], Any]) -> dict[str, Any]:
    """A line of the file of a rescoring, JSON types only."""
    return {
        "rollout_id": row.rollout_id,
        "group_id": row.group_id,
        "task_id": row.task_id,
        "purpose": row.purpose,
        "before": row.before,
        "after": row.after,
        "moves": dict(row.moves),
        "scores": plain(after.scores),
    }
