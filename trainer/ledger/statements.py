"""Statements of the writer's side, by what they put on record."""

from __future__ import annotations

GROUP = """
INSERT INTO groups (id, task_id, number, state, reason, step, members, changed, version, revision,
                    opened, whole, taken)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, step = excluded.step,
    members = CASE excluded.members WHEN '[]' THEN members ELSE excluded.members END,
    changed = excluded.changed, version = COALESCE(excluded.version, version),
    revision = revision + 1, opened = COALESCE(excluded.opened, opened),
    whole = COALESCE(excluded.whole, whole), taken = COALESCE(excluded.taken, taken)
"""
_TASK = "INSERT INTO tasks (id, {0}) VALUES (?, {1}) ON CONFLICT (id) DO UPDATE SET {0} = {2}"
VISITED = _TASK.format("visits", "1", "visits + 1")
FAILED_AGAIN = _TASK.format("failures", "1", "failures + 1")
WORKED = _TASK.format("failures", "0", "0")
STEP = "INSERT OR REPLACE INTO steps (step, metrics, finished) VALUES (?, ?, ?)"
QUARANTINE = (
    "INSERT INTO tasks (id, quarantined, reason) VALUES (?, ?, ?) ON CONFLICT (id) "
    "DO UPDATE SET quarantined = excluded.quarantined, reason = excluded.reason"
)
READMIT = "UPDATE tasks SET quarantined = 0, reason = '', failures = 0 WHERE id = ?"
