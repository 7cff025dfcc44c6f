"""What is known already about mutants, on disk: a run that was ended goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from .coverage import Survey
from .report import Ending
from .trials import Tried


@dataclass(slots=True)
class Records:
    """One folder, for one tree in one environment under one set of limits."""

    folder: Path
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def load(self) -> None:
        """Read what is there; the last line may be cut short. Blocking."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._file.exists():
            return
        text = self._file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            record = json.loads(line)
            self._known[record.pop("key")] = record
        if whole != text:
            self._file.write_text(whole, encoding="utf-8")

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
        new = self._survey.with_suffix(".new")
        new.write_text(json.dumps(asdict(found)), encoding="utf-8")
        new.replace(self._survey)

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
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **record}) + "\n")

    @property
    def _file(self) -> Path:
        return self.folder / "records.jsonl"

    @property
    def _survey(self) -> Path:
        return self.folder / "survey.json"
