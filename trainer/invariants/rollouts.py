"""Rollouts: each has its file, whole, and ended for a reason that there is."""

from __future__ import annotations

from collections import Counter

from patchgym.agent.stop_reason import STOP_RULES
from patchgym.trainer.errors import RunError
from patchgym.trainer.run_facts import Facts
from patchgym.trainer.trajectory_store import TrajectoryStore

from .finding import Finding


def files_whole(facts: Facts) -> Finding:
    """Each file is read to its end, checksums included."""
    store = TrajectoryStore(facts.folder.trajectories)
    broken: list[str] = []
    for row in facts.rollouts:
        try:
            stored = store.read(row["id"])
        except RunError as error:
            broken.append(str(error))
            continue
        if len(stored.trajectory.turns) != row["turns"]:
            broken.append(
                f"rollout {row['id']} has {row['turns']} turns on record and "
                f"{len(stored.trajectory.turns)} in its file"
            )
    return Finding(
        name="files whole",
        promise="every rollout on record has its file, whole",
        checked=len(facts.rollouts),
        broken=tuple(broken),
    )


def typed(facts: Facts) -> Finding:
    """Stop reasons, errors and rewards go together."""
    broken: list[str] = []
    failures: Counter[str] = Counter()
    for row in facts.rollouts:
        rule = next((r for name, r in STOP_RULES.items() if name == row["stop_reason"]), None)
        if rule is None:
            broken.append(f"rollout {row['id']} ended by {row['stop_reason']!r}: no stop reason")
            continue
        if rule.failure is not None:
            failures[row["stop_reason"]] += 1
            if not row["error"]:
                broken.append(f"rollout {row['id']}: {row['stop_reason']}, and no word of what")
        elif rule.in_baseline and row["reward"] is None:
            broken.append(f"rollout {row['id']}: {row['stop_reason']}, and it has no reward")
    return Finding(
        name="typed",
        promise="every rollout has a stop reason, and every failed one says what failed",
        checked=len(facts.rollouts),
        broken=tuple(broken),
        note=", ".join(f"{count} {kind}" for kind, count in sorted(failures.items())),
    )
