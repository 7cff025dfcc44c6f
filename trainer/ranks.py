"""How far two orders of the same things agree; pure, in n log n, ties averaged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from statistics import fmean


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1, the least first; equal ones share the mean of theirs."""
    found = [0.0] * len(values)
    below = 0
    order = sorted(range(len(values)), key=values.__getitem__)
    for _, run in groupby(order, key=values.__getitem__):
        places = list(run)
        for place in places:
            found[place] = below + (len(places) + 1) / 2
        below += len(places)
    return found


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation (1904), -1 to 1; None where one of them has no spread."""
    one, other = _centred(ranks(first)), _centred(ranks(second))
    spread = math.fsum(x * x for x in one) * math.fsum(y * y for y in other)
    if not spread:
        return None
    return math.fsum(x * y for x, y in zip(one, other, strict=True)) / math.sqrt(spread)


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b (1945) by Knight's way (1966), -1 to 1; None where one has no spread."""
    pairs = sorted(zip(first, second, strict=True))
    every = _pairs(len(pairs))
    tied_first, tied_second = _tied(x for x, _ in pairs), _tied(y for _, y in pairs)
    spread = (every - tied_first) * (every - tied_second)
    if not spread:
        return None
    discordant = _inversions([y for _, y in pairs])
    concordant = every - tied_first - tied_second + _tied(pairs) - discordant
    return (concordant - discordant) / math.sqrt(spread)


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values) if values else 0.0
    return [value - mean for value in values]


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _tied(values: Iterable[Hashable]) -> int:
    """Pairs of equal values."""
    return sum(_pairs(count) for count in Counter(values).values())


def _inversions(values: Sequence[float]) -> int:
    """Pairs in which the larger value comes first, by merging sorted runs of twice the length."""
    found, width, row = 0, 1, list(values)
    while width < len(row):
        merged: list[float] = []
        for start in range(0, len(row), 2 * width):
            left, right = row[start : start + width], row[start + width : start + 2 * width]
            at = 0
            for value in right:
                while at < len(left) and left[at] <= value:
                    merged.append(left[at])
                    at += 1
                merged.append(value)
                found += len(left) - at
            merged += left[at:]
        row, width = merged, 2 * width
    return found
