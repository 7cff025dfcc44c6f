"""What a list of rollouts is asked for: the query of an address, checked, as SQL and back.

    ?task=calc-*&outcome=solved&verdict=resolved&reward=0.5..1&tampering=yes&purpose=train
     &group=g00012&step=3&q=m4&sort=-reward

Everything that a person can type is a value of the statement, never a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from patchgym.trainer.errors import UserError

SORTS: Mapping[str, str] = MappingProxyType(
    {
        "finished": "r.finished",
        "id": "r.id",
        "task": "r.task_id",
        "group": "r.group_id",
        "reward": "COALESCE(r.reward, -1e300)",
        "turns": "r.turns",
        "tokens": "r.sampled_tokens",
        "seconds": "r.seconds",
    }
)
"""What rows can be sorted by, as SQL; rollouts of the same value by their id."""

_LONGEST = 500


class FilterError(UserError):
    """A part of the address that makes no sense; says which, and what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which rollouts, and in which order; an empty text asks for nothing."""

    task: str = ""
    """A task's id; `*` stands for anything."""
    outcome: str = ""
    """A stop reason."""
    verdict: str = ""
    """`resolved`, `unresolved` or `unknown`."""
    reward: str = ""
    """`LOW..HIGH`, both included, either left out; one number alone; or `none`."""
    tampering: str = ""
    """`yes` or `no`."""
    purpose: str = ""
    """`train`, or the name of an evaluation."""
    group: str = ""
    """A group's id."""
    step: str = ""
    """The update that trained its group, from 0."""
    q: str = ""
    """A part of the rollout's id."""
    sort: str = "-finished"
    """A name of `SORTS`, with `-` for the highest first."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if len(getattr(self, each.name)) > _LONGEST:
                raise FilterError(f"{each.name}: longer than {_LONGEST} characters")
        self._one_of("verdict", "resolved", "unresolved", "unknown")
        self._one_of("tampering", "yes", "no")
        if self.sort.removeprefix("-") not in SORTS:
            raise FilterError(f"sort={self.sort}: rows are sorted by one of {', '.join(SORTS)}")
        if self.step and not (self.step.isdecimal() and len(self.step) < 12):
            raise FilterError(f"step={self.step}: a step is a whole number, from 0")
        _range(self.reward)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """What `query` asks for; keys of others are left alone. Raises FilterError."""
        names = [each.name for each in fields(cls)]
        given = {name: query[name].strip() for name in names if query.get(name, "").strip()}
        return cls(**given)

    def query(self, **changes: str) -> str:
        """As the query of an address, with `changes`; empty when nothing is asked for."""
        return urlencode({name: value for name, value in self._asked(changes) if value})

    @property
    def active(self) -> bool:
        """Whether anything but the order is asked for."""
        return any(name != "sort" for name, _ in self._asked({}))

    @property
    def descending(self) -> bool:
        """The highest first."""
        return self.sort.startswith("-")

    @property
    def column(self) -> str:
        """What rows are sorted by, a name of `SORTS`."""
        return self.sort.removeprefix("-")

    def where(self) -> tuple[str, list[Any]]:
        """The condition on rollouts `r`, and its values."""
        parts, values = ["1"], []
        for condition, given in self._conditions():
            parts.append(condition)
            values += given
        return " AND ".join(parts), values

    def _conditions(self) -> Iterator[tuple[str, list[Any]]]:
        if self.task:
            if "*" in self.task:
                yield "r.task_id LIKE ? ESCAPE '\\'", [_like(self.task).replace("*", "%")]
            else:
                yield "r.task_id = ?", [self.task]
        exact = (("stop_reason", self.outcome), ("verdict", self.verdict),
                 ("purpose", self.purpose), ("group_id", self.group))  # fmt: skip
        for column, value in exact:
            if value:
                yield f"r.{column} = ?", [value]
        if self.reward == "none":
            yield "r.reward IS NULL", []
        elif self.reward:
            yield "r.reward BETWEEN ? AND ?", list(_range(self.reward))
        if self.tampering:
            yield f"r.tampering {'> 0' if self.tampering == 'yes' else '= 0'}", []
        if self.step:
            yield "r.group_id IN (SELECT id FROM groups WHERE step = ?)", [int(self.step)]
        if self.q:
            yield "r.id LIKE ? ESCAPE '\\'", [f"%{_like(self.q)}%"]

    def _asked(self, changes: Mapping[str, str]) -> list[tuple[str, str]]:
        values = {each.name: changes.get(each.name, getattr(self, each.name))
                  for each in fields(self)}  # fmt: skip
        if values["sort"] == "-finished":
            values["sort"] = ""
        return [(name, value) for name, value in values.items() if value]

    def _one_of(self, name: str, *known: str) -> None:
        value = getattr(self, name)
        if value and value not in known:
            raise FilterError(f"{name}={value}: it is one of {', '.join(known)}")


def _like(text: str) -> str:
    for each in "\\%_":
        text = text.replace(each, f"\\{each}")
    return text


def _range(text: str) -> tuple[float, float]:
    """`LOW..HIGH` as two numbers."""
    if text in ("", "none"):
        return -math.inf, math.inf
    low, dots, high = text.partition("..")
    try:
        found = (
            float(low) if low else -math.inf,
            float(high) if high else math.inf if dots else float(low),
        )
    except ValueError:
        found = (math.nan, math.nan)
    if not found[0] <= found[1]:
        raise FilterError(
            f"reward={text}: write LOW..HIGH, such as 0.5..1, 0.5.. or ..0, or none for those "
            "without one"
        )
    return found
