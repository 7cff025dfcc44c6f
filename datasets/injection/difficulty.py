"""How hard a bug may be to mend: an estimate from what is known before anyone has tried."""

from __future__ import annotations

import math

from .choose import Mutant

SUBTLE = frozenset(
    ("boundary", "truthiness", "off-by-one", "slice", "variable", "attribute", "mutable-default",
     "dropped-statement", "dropped-condition", "swapped-arguments", "default-value", "early-return")
)  # fmt: skip


def difficulty(mutant: Mutant, *, failing: int, reach: int) -> float:
    """The share of attempts that is expected to fail, 0 to 1, in steps of 0.01; not calibrated.

    `failing` is the number of tests that fail; `reach` the lines of code that the closest one of
    them runs: the more, the further it is from test to fault.

        0.1 + 0.2 subtle kind + 0.2 each further bug + up to 0.3 reach + up to 0.15 few tests
    """
    subtle = 0.2 * any(place.kind in SUBTLE for place in mutant.places)
    further = 0.2 * (len(mutant.places) - 1)
    far = 0.1 * min(3.0, math.log10(max(1, reach)))
    few = 0.15 / max(1, failing)
    return round(min(0.95, 0.1 + subtle + further + far + few), 2)
