"""What an injection came to: by fate, by kind of bug, by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from patchgym.datasets.task import Task

from .choose import Mutant
from .trials import Fate

Ending = Literal["kept", "no-compile", "part-unseen", "flaky", "invalid"] | Fate
"""`part-unseen`: one of two bugs fails no test by itself. `invalid`: validation said no."""
ENDINGS: Mapping[Ending, str] = {
    "kept": "became tasks",
    "unseen": "equivalent: no test fails",
    "part-unseen": "one of two bugs fails no test by itself",
    "too-many": "too many tests fail",
    "hung": "a test hangs",
    "broken": "tests are not found any more, or the run breaks off",
    "flaky": "not the same each time",
    "invalid": "refused by validation",
    "no-compile": "not Python any more",
}


@dataclass(slots=True)
class Statistics:
    """Counts of the mutants tried."""

    places: int = 0
    """Ways to put one bug that some test would run."""
    tests: int = 0
    """Tests that pass each time."""
    unstable: int = 0
    """Those that don't."""
    endings: Counter[Ending] = field(default_factory=Counter)
    kinds: dict[str, Counter[Ending]] = field(default_factory=dict)
    """Endings by kind of bug."""
    files: dict[str, Counter[Ending]] = field(default_factory=dict)
    """Endings by file."""

    def count(self, mutant: Mutant, ending: Ending) -> None:
        """One more is through."""
        self.endings[ending] += 1
        self.kinds.setdefault(mutant.kind, Counter())[ending] += 1
        self.files.setdefault(mutant.places[0].path, Counter())[ending] += 1

    @property
    def tried(self) -> int:
        """Mutants that were tried."""
        return self.endings.total()

    @property
    def kept(self) -> int:
        """Mutants that became tasks."""
        return self.endings["kept"]

    def document(self) -> dict[str, object]:
        """For JSON; tables are sorted by what was kept."""
        tried = self.tried
        return {
            "places": self.places,
            "tests": self.tests,
            "unstable": self.unstable,
            "tried": tried,
            "compiled": tried - self.endings["no-compile"],
            "kept": self.kept,
            "compiled_share": _share(tried - self.endings["no-compile"], tried),
            "kept_share": _share(self.kept, tried),
            "endings": {name: self.endings[name] for name in ENDINGS if self.endings[name]},
            "kinds": _table(self.kinds),
            "files": _table(self.files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What was made."""

    tasks: tuple[Task, ...]
    statistics: Statistics
    reason: str = ""
    """Why there are fewer tasks than were asked for; empty when there are not."""


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _table(rows: Mapping[str, Counter[Ending]]) -> dict[str, dict[str, int]]:
    order = sorted(rows, key=lambda name: (-rows[name]["kept"], name))
    return {
        name: {
            "tried": rows[name].total(),
            **{ending: rows[name][ending] for ending in ENDINGS if rows[name][ending]},
        }
        for name in order
    }
