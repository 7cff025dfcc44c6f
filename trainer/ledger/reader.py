"""The reader's side of a ledger, for reports, for resuming, for whoever looks at a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchgym.trainer.errors import RunError

from .damage import damaged, is_damage, too_new
from .files import connect_to_read
from .schema import SCHEMA_VERSION, read_as_newest, version_of


class LedgerReader:
    """A context manager. It holds nobody up, sees what was committed when a query began, and reads
    a ledger of an older version as one of the newest without touching it."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise RunError(f"{path}: no such file; is {path.parent} a run folder?")
        self.path = path
        try:
            self._connection = connect_to_read(path)
            self._connection.row_factory = sqlite3.Row
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        try:
            self.version = version_of(self._connection)
            """Of the file."""
            if not self.version:
                raise RunError(f"{path}: not a run's ledger: there is nothing in it")
            if self.version > SCHEMA_VERSION:
                raise too_new(path, self.version)
            if self.version == 1:
                read_as_newest(self._connection)
            self.rows("SELECT 1 FROM meta LIMIT 1")
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from None
        except RunError:
            self._connection.close()
            raise

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query; RunError when the file is damaged."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise damaged(self.path, str(error)) from None
            raise

    def meta(self, key: str, default: Any = None) -> Any:
        """A named JSON value of the run."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(rows[0]["value"]) if rows else default

    def steps(self) -> list[dict[str, Any]]:
        """Metrics of the finished steps, in order."""
        rows = self.rows("SELECT step, metrics FROM steps ORDER BY step")
        # One document is parsed in half the time of thousands of small ones.
        known = json.loads(f"[{','.join(row['metrics'] for row in rows)}]")
        for row, metrics in zip(rows, known, strict=True):
            metrics["step"] = row["step"]
        return list(known)

    def newest(self, most: int = 50) -> list[sqlite3.Row]:
        """The rollouts that finished last, the newest first."""
        return self.rows("SELECT * FROM rollouts ORDER BY finished DESC, id DESC LIMIT ?", (most,))

    def group(self, group_id: str) -> tuple[sqlite3.Row, list[sqlite3.Row]] | None:
        """A group's row and those of its rollouts, by member; None when it was never opened."""
        found = self.rows("SELECT * FROM groups WHERE id = ?", (group_id,))
        if not found:
            return None
        sql = "SELECT * FROM rollouts WHERE group_id = ? ORDER BY member, finished"
        return found[0], self.rows(sql, (group_id,))

    def turns(self, rollout_id: str) -> list[sqlite3.Row]:
        """A rollout's turns, in order."""
        return self.rows("SELECT * FROM turns WHERE rollout_id = ? ORDER BY number", (rollout_id,))

    def scores(self, rollout_id: str) -> list[sqlite3.Row]:
        """A rollout's scores, by component."""
        sql = "SELECT * FROM scores WHERE rollout_id = ? ORDER BY component"
        return self.rows(sql, (rollout_id,))

    def tasks(self) -> list[sqlite3.Row]:
        """What is known of each task that was opened: visits, failures in a row, whether it is
        left out, and why."""
        return self.rows("SELECT * FROM tasks ORDER BY id")

    def left_out(self) -> dict[str, str]:
        """Why each task that is left out is so, by id."""
        sql = "SELECT id, reason FROM tasks WHERE quarantined ORDER BY id"
        return {row["id"]: row["reason"] for row in self.rows(sql)}

    def _unusable(self, error: sqlite3.Error) -> RunError:
        if is_damage(error) and getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
            return damaged(self.path, str(error))
        return RunError(f"{self.path}: not a run's ledger: {error}")
