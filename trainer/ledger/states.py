"""The states of a group, and the changes between them that are allowed; the one place that says so.

    (none) --opened--> pending --whole--> ready --taken by a step--> taken --applied--> committed
                          |                 ^                          |
                          |                 +-------- given up --------+
                          +-> dropped <-----+--------------------------+    each with its reason

A group that is pending may be opened again: its rollouts begin anew when a run is resumed. What a
restore does (`Ledger.restore`) is outside this table: weights were lost, so what they had learned
is ready or pending again. Nothing else leaves `committed`, and nothing at all leaves `dropped`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

GroupState = Literal["pending", "ready", "taken", "committed", "dropped"]

ALLOWED: Mapping[GroupState | None, frozenset[GroupState]] = MappingProxyType(
    {
        None: frozenset(("pending",)),
        "pending": frozenset(("pending", "ready", "dropped")),
        "ready": frozenset(("taken", "dropped")),
        "taken": frozenset(("committed", "ready", "dropped")),
        "committed": frozenset(),
        "dropped": frozenset(),
    }
)
"""By state, those that may follow; None is that of a group that was never opened."""


class IllegalChange(Exception):
    """A group was to go where it can't from where it is: an error of the program, never of a user.

    The message names the group and both states."""


def check_change(group_id: str, before: GroupState | None, after: GroupState) -> None:
    """IllegalChange unless a group may go from `before` to `after`."""
    if after in ALLOWED[before]:
        return
    was = "was never opened" if before is None else f"is {before}"
    may = ", ".join(sorted(ALLOWED[before])) or "nothing"
    if before == "committed":
        may = "nothing, but for a restore"
    raise IllegalChange(
        f"group {group_id} {was} and can't become {after}: what may follow is {may}"
    )
