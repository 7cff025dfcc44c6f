"""The similarity component: how much a change is like the gold patch."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from patchgym.rewards.component import Component, Measurement, UnknownValue
from patchgym.rewards.scene import Change, ChangedFile, Scene

Side = tuple[str, str]
"""`+` or `-`, and a line with single blanks."""
_WHOLE = "="  # stands for a file without lines to compare
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity(Component):
    """Earns: 1 for the gold patch's very lines, 0 for nothing in common.

    Changed lines are compared file by file, blanks aside, in any order. Lines that gold has too
    count whole; of the others, the words that both have count `partly`. Takes linear time.
    """

    partly: float = 0.5
    """From 0 to 1; 0: only equal lines count."""

    def __post_init__(self) -> None:
        if not 0 <= self.partly <= 1:
            raise ValueError(f"partly is {self.partly}: it must be 0 to 1")

    def measure(self, scene: Scene) -> Measurement:
        """The value, with that of each file as evidence. Raises UnknownValue without a gold patch
        and for a diff that does not apply."""
        if scene.change.problem:
            raise UnknownValue(f"the diff does not apply: {scene.change.problem}")
        if scene.gold.problem:
            raise UnknownValue(f"the gold patch does not apply: {scene.gold.problem}")
        if not scene.gold.files:
            raise UnknownValue("the task has no gold patch to compare with")
        ours, golds = _by_path(scene.change), _by_path(scene.gold)
        total, matched, files = 0, 0.0, {}
        for path in sorted({*ours, *golds}):
            lines = ours.get(path, Counter()), golds.get(path, Counter())
            size = lines[0].total() + lines[1].total()
            alike = self._alike(*lines)
            total, matched = total + size, matched + alike
            files[path] = round(alike / size, 4) if size else 0.0
        return Measurement(value=matched / total if total else 0.0, evidence={"files": files})

    def _alike(self, ours: Counter[Side], gold: Counter[Side]) -> float:
        """Lines of both that are alike, out of the lines of both."""
        same = (ours & gold).total()
        rest, gold_rest = ours - gold, gold - ours
        words, gold_words = _words(rest), _words(gold_rest)
        share = (words & gold_words).total() / max(1, words.total(), gold_words.total())
        return 2 * (same + self.partly * share * min(rest.total(), gold_rest.total()))


def _by_path(change: Change) -> Mapping[str, Counter[Side]]:
    return {file.path: _lines(file) for file in change.files}


def _lines(file: ChangedFile) -> Counter[Side]:
    """Changed lines with something in them; a file without any is one line of its own."""
    found = Counter(
        (sign, " ".join(line.text.split()))
        for hunk in file.hunks
        for sign, lines in (("-", hunk.removed), ("+", hunk.added))
        for line in lines
        if line.text.strip()
    )
    if file.binary or not found:
        same = "gone" if file.after is None else hashlib.sha256(file.after).hexdigest()
        return Counter({(_WHOLE, f"{file.old_path} {same}"): 1})
    return found


def _words(lines: Counter[Side]) -> Counter[Side]:
    found: Counter[Side] = Counter()
    for (sign, text), times in lines.items():
        if sign == _WHOLE:
            continue
        for word in _WORD.findall(text):
            found[sign, word] += times
    return found
