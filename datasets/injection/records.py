"""What is known already about mutants, on disk: a run that was ended goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from patchgym.datasets.journal import Journal, JournalBusy, write_whole
from patchgym.datasets.task import TaskError

from .coverage import Survey
from .report import Ending
from .trials import Tried


class Records:
    """One folder, for one tree in one environment under one set of limits. Every method blocks.

    Raises TaskError when another process is at it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        self._journal = Journal(folder, "records.jsonl")

    def open(self) -> None:
        """Read what is there."""
        try:
            rows = self._journal.open()
        except JournalBusy as process:
            raise TaskError(
                f"{self.folder}: process {process} is making these tasks: "
                "wait for it, or name another file"
            ) from None
        for record in rows:
            if "key" in record:
                self._known[record.pop("key")] = record

    def close(self) -> None:
        """Let another process have the folder."""
        self._journal.close()

    def survey(self) -> Survey | None:
        """The survey that was kept."""
        try:
            found = json.loads(self._survey.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return None
        return Survey(
            tests=found["tests"],
            unstable=tuple(found["unstable"]),
            lines={
                path: {int(line): tuple(tests) for line, tests in by_line.items()}
                for path, by_line in found["lines"].items()
            },
        )

    def keep_survey(self, found: Survey) -> None:
        """Keep it."""
        write_whole(self._survey, json.dumps(asdict(found)).encode())

    def tried(self, key: str) -> Tried | None:
        """What a mutant's tests said."""
        found = self._known.get(f"tried {key}")
        if found is None:
            return None
        return Tried(fate=found["fate"], failing=found["failing"], passing=tuple(found["passing"]))

    def keep_tried(self, key: str, tried: Tried) -> None:
        """Keep it."""
        self._keep(f"tried {key}", asdict(tried))

    def verdict(self, key: str) -> Ending | None:
        """What validation made of a mutant's task."""
        found = self._known.get(f"valid {key}")
        return None if found is None else cast("Ending", found["ending"])

    def keep_verdict(self, key: str, ending: Ending) -> None:
        """Keep it."""
        self._keep(f"valid {key}", {"ending": ending})

    def _keep(self, key: str, record: Mapping[str, Any]) -> None:
        self._known[key] = dict(record)
        self._journal.append({"key": key, **record})

    @property
    def _survey(self) -> Path:
        return self.folder / "survey.json"
