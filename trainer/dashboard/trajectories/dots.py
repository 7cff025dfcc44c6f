"""Many outcomes in a row of dots: made at once, since a page has thousands of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True, slots=True)
class Dots:
    """Outcomes next to each other."""

    shown: Markup
    """The dots, each with its title."""
    words: str
    """All of them in words, for whoever does not see them."""


def dots(names: Sequence[str], outcomes: Sequence[str]) -> Dots:
    """One dot for each of `outcomes`, an empty one where there is none; `names` say whose. No dots
    where none of them has an outcome."""
    if not any(outcomes):
        return Dots(Markup("\N{EN DASH}"), "none")
    parts = [
        f'<i class="dot-outcome {outcome or "none"}" title="{escape(name)}: {_words(outcome)}"></i>'
        for name, outcome in zip(names, outcomes, strict=True)
    ]
    counts = Counter(_words(outcome) for outcome in outcomes)
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return Dots(Markup("".join(parts)), words)


def _words(outcome: str) -> str:
    return outcome.replace("_", " ") or "no outcome"
