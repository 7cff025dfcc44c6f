"""Which bugs to try next: seeded, spread over kinds, files and functions, some in combination.

The choice depends on the seed and on what became of the bugs tried before, in the order in which
they were chosen; never on how fast they were tried.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchgym.datasets.injection.source import Place, Source, apply

from .coverage import Survey

COMBINED = "combined"
TRIED = 0.25  # what a try weighs beside a task that was kept
PARTNERS = 40  # nearest places that a second bug is drawn from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mutant:
    """One or more bugs, and the files that they make."""

    places: tuple[Place, ...]
    files: Mapping[str, bytes]
    """The changed files whole, by path."""
    tests: frozenset[str]
    """Those that run the bug."""

    @property
    def kind(self) -> str:
        """The kind of its bug, or `combined`."""
        return self.places[0].kind if len(self.places) == 1 else COMBINED

    @property
    def key(self) -> str:
        """Hash of what it changes: 16 hex digits."""
        parts = (
            part for path, data in sorted(self.files.items()) for part in (path.encode(), data)
        )
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


class Chooser:
    """Gives mutants, and hears what became of them."""

    def __init__(
        self,
        places: Sequence[Place],
        sources: Mapping[str, Source],
        survey: Survey,
        *,
        seed: int,
        combine: float,
    ) -> None:
        """`combine` is the share of mutants with two bugs."""
        self._random = random.Random(seed)
        self._sources, self._survey, self._combine = sources, survey, combine
        self._left: dict[str, list[Place]] = defaultdict(list)
        self._tests: dict[Place, frozenset[str]] = {}
        for place in places:
            if tests := survey.covering(place.path, place.covered_by):
                self._tests[place] = tests
                self._left[place.kind].append(place)
        for kind in sorted(self._left):
            self._random.shuffle(self._left[kind])
        self.covered = len(self._tests)
        """Places that some test runs."""
        self._kinds: Counter[str] = Counter()
        self._weight: dict[str, float] = defaultdict(float)
        self._seen: set[str] = set()

    def batch(self, size: int) -> list[Mutant]:
        """The next ones to try; fewer than `size` when there are no more."""
        found: list[Mutant] = []
        while len(found) < size and any(self._left.values()):
            mutant = self._next()
            if mutant is not None and mutant.key not in self._seen:
                self._seen.add(mutant.key)
                found.append(mutant)
        return found

    def kept(self, mutant: Mutant) -> None:
        """It became a task."""
        for place in mutant.places:
            self._count(place, 1.0)

    def _next(self) -> Mutant | None:
        kinds = sorted(kind for kind, left in self._left.items() if left)
        lightest = min(self._weight[kind] for kind in kinds)
        kind = self._random.choice([each for each in kinds if self._weight[each] == lightest])
        place = min(self._left[kind], key=self._use)
        self._left[kind].remove(place)
        self._count(place, TRIED)
        if self._random.random() < self._combine:
            partner = self._partner(place)
            if partner is not None:
                return self._mutant(place, partner)
        return self._mutant(place)

    def _use(self, place: Place) -> tuple[float, float]:
        """How much its function and file were used already; min() takes the first of equals."""
        return self._weight[f"{place.path}:{place.function}"], self._weight[place.path]

    def _count(self, place: Place, weight: float) -> None:
        for key in (place.kind, place.path, f"{place.path}:{place.function}"):
            self._weight[key] += weight

    def _partner(self, place: Place) -> Place | None:
        """Another bug of the same file that the same tests run, not far away."""
        tests = self._tests[place]
        near = [
            other
            for kind in sorted(self._left)
            for other in self._left[kind]
            if other.path == place.path and kind != place.kind and self._tests[other] & tests
        ]
        near.sort(key=lambda other: (abs(other.line - place.line), other.kind, other.edits))
        return self._random.choice(near[:PARTNERS]) if near else None

    def _mutant(self, *places: Place) -> Mutant | None:
        return make(places, self._sources, self._tests)


def make(
    places: Sequence[Place],
    sources: Mapping[str, Source],
    tests: Mapping[Place, frozenset[str]],
) -> Mutant | None:
    """These bugs at once, in one file; None when they are in each other's way or change nothing."""
    path = places[0].path
    before = sources[path].data
    data = apply(before, [edit for place in places for edit in place.edits])
    if data is None or data == before:
        return None
    return Mutant(
        places=tuple(sorted(places, key=lambda place: place.line)),
        files={path: data},
        tests=frozenset().union(*(tests[place] for place in places)),
    )


def parts(mutant: Mutant, sources: Mapping[str, Source], survey: Survey) -> tuple[Mutant, ...]:
    """Each bug of a combination by itself."""
    tests = {place: survey.covering(place.path, place.covered_by) for place in mutant.places}
    found = (make((place,), sources, tests) for place in mutant.places)
    return tuple(each for each in found if each is not None)
