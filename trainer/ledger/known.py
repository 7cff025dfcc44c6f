"""What the writer's side knows of every group, in a byte for each one that is over.

A run of days opens hundreds of thousands of groups, and a change is refused by the state that a
group is in, so that all of them must be known. Those that are under way are few: they are held by
name. Of those that are over a number and a state are left, where the name follows from the number.
"""

from __future__ import annotations

from collections.abc import Iterable

from .states import GroupState

_OVER: tuple[GroupState, ...] = ("committed", "dropped")


def group_name(number: int) -> str:
    """The id of group `number`."""
    return f"g{number:05d}"


class KnownGroups:
    """States by group; for one thread."""

    def __init__(self, groups: Iterable[tuple[str, int, GroupState]] = ()) -> None:
        """`groups` are id, number and state of each."""
        self._held: dict[str, tuple[int, GroupState]] = {}
        """Groups under way, and those with a name of their own."""
        self._names: dict[int, str] = {}
        """Of the groups in `_held`, by number."""
        self._over = bytearray()
        """By number: 0, or 1 and the place in `_OVER`."""
        for group_id, number, state in groups:
            self.put(group_id, number, state)

    def state(self, group_id: str) -> GroupState | None:
        """A group's state; None when it was never opened."""
        if group_id in self._held:
            return self._held[group_id][1]
        number = int(group_id[1:]) if group_id[1:].isdecimal() else -1
        if not 0 <= number < len(self._over) or group_name(number) != group_id:
            return None
        return _OVER[self._over[number] - 1] if self._over[number] else None

    def name(self, number: int) -> str:
        """The id of a group that was opened, by its number."""
        return self._names.get(number, group_name(number))

    def put(self, group_id: str, number: int, state: GroupState | None) -> None:
        """A group is in `state` now; None: it was never opened."""
        if self._held.pop(group_id, None) is not None:
            self._names.pop(number, None)
        own_name = group_name(number) != group_id
        if not own_name and number < len(self._over):
            self._over[number] = 0
        if state in _OVER and not own_name:
            self._over.extend(bytes(max(0, number + 1 - len(self._over))))
            self._over[number] = 1 + _OVER.index(state)
        elif state is not None:
            self._held[group_id] = number, state
            self._names[number] = group_id
