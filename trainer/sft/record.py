"""What a supervised run keeps of itself in the ledger, and its summary.

Steps and measurements stand in tables of their own: a training run's are about rollouts and
rewards, of which there are none here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from patchgym.trainer.errors import RunError
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.run_folder import RunFolder

if TYPE_CHECKING:
    from .measure import Measured

_TABLES = (
    "CREATE TABLE IF NOT EXISTS sft_steps (step INTEGER PRIMARY KEY, metrics TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sft_measures (step INTEGER PRIMARY KEY, loss REAL NOT NULL, "
    "accuracy REAL NOT NULL, tokens INTEGER NOT NULL)",
)


class SftRecorder:
    """The writer's side; one per run."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        for sql in _TABLES:
            ledger.record(sql)

    def begin(self, step: int, facts: Mapping[str, object]) -> None:
        """The run begins, or goes on, at `step`: what was recorded past it is done again."""
        self._ledger.record("DELETE FROM sft_steps WHERE step >= ?", (step,))
        self._ledger.record("DELETE FROM sft_measures WHERE step > ?", (step,))
        self._ledger.meta("sft", dict(facts))

    def state(self, state: str, seconds: float) -> None:
        """`running`, `finished`, `stopped` or `failed`, after `seconds` in all."""
        self._ledger.meta("seconds", seconds)
        self._ledger.meta("state", state)

    def step(self, step: int, metrics: Mapping[str, object]) -> None:
        """A finished update, from 0."""
        self._ledger.record(
            "INSERT OR REPLACE INTO sft_steps VALUES (?, ?)", (step, json.dumps(metrics))
        )

    def measured(self, step: int, result: Measured) -> None:
        """The held-out share after `step` updates."""
        values = (step, result.loss, result.accuracy, result.tokens)
        self._ledger.record("INSERT OR REPLACE INTO sft_measures VALUES (?, ?, ?, ?)", values)

    def exported(self, folder: str) -> None:
        """The final weights were written there."""
        self._ledger.meta("sft.export", folder)


def read_facts(folder: RunFolder) -> dict[str, Any]:
    """What `begin` was told of the data; RunError when the run never began."""
    with LedgerReader(folder.ledger) as reader:
        facts = reader.meta("sft")
    if facts is None:
        raise RunError(f"{folder.path}: it ended before it began; start it anew")
    known: dict[str, Any] = facts
    return known


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """The run's summary, JSON types only."""
    with LedgerReader(folder.ledger) as reader:
        steps = reader.rows("SELECT step, metrics FROM sft_steps ORDER BY step")
        measures = reader.rows("SELECT * FROM sft_measures ORDER BY step")
        facts = reader.meta("sft", {})
        export = reader.meta("sft.export")
        state, seconds = reader.meta("state", "unknown"), reader.meta("seconds", 0.0)
    history = [{"step": row["step"], **json.loads(row["metrics"])} for row in steps]
    return {
        "run": str(folder.path),
        "kind": "sft",
        "state": state,
        "steps": len(history),
        "planned_steps": facts.get("steps", 0),
        "seconds": seconds,
        "data": facts.get("data", {}),
        "heldout": [dict(row) for row in measures],
        "history": history,
        "checkpoints": str(folder.checkpoints),
        "curve": str(folder.curve) if folder.curve.is_file() else None,
        "export": export,
    }
