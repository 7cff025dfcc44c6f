"""What a policy would have to say to repair a task."""

from __future__ import annotations

from patchgym.datasets.task import Task


def gold_source(task: Task) -> str:
    """The file in focus with the gold patch applied, by its added and kept lines."""
    lines = task.gold_patch.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("@@")) + 1
    kept = [line[1:] for line in lines[start:] if line[:1] in (" ", "+")]
    return "\n".join(kept) + "\n"
