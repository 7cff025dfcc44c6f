"""What a mining run did, in numbers: tasks, and every commit that made none with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .store import Decision

REASONS: Mapping[str, str] = {
    "root": "the first commit: nothing to compare it with",
    "shallow": "the clone ends here: git fetch --unshallow brings the rest",
    "missing-objects": "objects of it are not in the clone: fetch them",
    "no-changes": "it changes nothing against its first parent",
    "outside-subproject": "it changes nothing in the subproject",
    "no-source": "no source changes: only tests, docs, locks, generated or vendored files",
    "no-tests": "no tests change",
    "no-test-module": "only fixtures or snapshots change, or tests go",
    "odd-path": "a path is not UTF-8, or not printable",
    "symlink-in-tests": "a symlink among the tests changes",
    "too-large": "more than 100 files or 512 KiB on one side",
    "environment": "no environment could be made in which its tests run",
    "command": "the test command can't be used",
    "patch-refused": "its fix can't be applied in a sandbox",
    "no-tests-ran": "its test files hold no test, or can't be loaded",
    "network": "its tests want the network",
    "timeout": "its tests do not end in time",
    "unreliable": "exit code and outcomes of its tests do not agree",
    "fails-with-fix": "no test passes with the fix",
    "not-broken": "no test fails without the fix",
    "flaky": "every test that the fix mends is flaky",
    "no-statement": "nothing can be told of it without the fix",
    "invalid": "its parts make no task",
}
"""Why a commit makes no task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mined:
    """The outcome of a run."""

    decisions: Sequence[Decision]
    """By commit, newest first."""
    undecided: Mapping[str, str] = field(default_factory=dict)
    """Why the machine failed, by commit; the next run tries these again."""
    taken_over: int = 0
    """Candidates that an earlier run had decided."""
    candidates: int = 0
    """Commits whose tests were to be run, or had been."""
    seconds: float = 0.0
    """Wall seconds."""

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The tasks as JSON holds them, but for `repository`; newest first."""
        return tuple(each.task for each in self.decisions if each.task is not None)

    @property
    def dropped(self) -> dict[str, int]:
        """How many commits were dropped, by reason, the most frequent first."""
        reasons = [each.dropped.reason for each in self.decisions if each.dropped is not None]
        counts = Counter(reasons)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def only_environments_fail(self) -> bool:
        """Whether there were candidates, and not one got as far as its tests."""
        late = self.dropped.get("environment", 0)
        return bool(self.candidates) and late == self.candidates


def document(mined: Mined) -> dict[str, Any]:
    """The run as one JSON document."""
    return {
        "looked_at": len(mined.decisions) + len(mined.undecided),
        "candidates": mined.candidates,
        "taken_over": mined.taken_over,
        "tasks": len(mined.rows),
        "task_ids": [row["id"] for row in mined.rows],
        "dropped": mined.dropped,
        "undecided": dict(mined.undecided),
        "commits": {
            each.commit: {"reason": each.dropped.reason, "detail": each.dropped.detail}
            for each in mined.decisions
            if each.dropped is not None
        },
        "seconds": round(mined.seconds, 1),
    }
