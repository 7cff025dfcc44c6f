"""Distributions of seconds (and of tokens) that the model draws from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

Draw = Callable[[random.Random], float]

COUNTS = {"const": 1, "uniform": 2, "lognormal": 2, "exponential": 1}
"""Numbers that each kind but `values` takes."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A distribution of numbers from 0 up: seconds, unless the field that holds it says tokens."""

    spec: str
    """`const:a`, `uniform:a,b`, `lognormal:median,sigma`, `exponential:mean`, or `values:a,b,...`,
    which are measured values, each as likely as the others; ValueError for anything else."""

    def __post_init__(self) -> None:
        self._parsed()

    @classmethod
    def of(cls, values: Sequence[float]) -> Duration:
        """The measured `values`, to four digits."""
        return cls("values:" + ",".join(f"{value:.4g}" for value in values))

    @property
    def mean(self) -> float:
        """Its expectation."""
        kind, numbers = self._parsed()
        if kind == "uniform":
            return (numbers[0] + numbers[1]) / 2
        if kind == "lognormal":
            return numbers[0] * math.exp(numbers[1] ** 2 / 2)
        return fmean(numbers)

    def times(self, factor: float) -> Duration:
        """Every draw, `factor` times as long."""
        kind, numbers = self._parsed()
        scaled = [number * factor for number in numbers]
        if kind == "lognormal":
            scaled[1] = numbers[1]
        return Duration(f"{kind}:" + ",".join(repr(number) for number in scaled))

    def drawer(self) -> Draw:
        """A function that draws from a random stream."""
        kind, numbers = self._parsed()
        first = numbers[0]
        if kind == "const":
            return lambda stream: first
        if kind == "uniform":
            return lambda stream: stream.uniform(first, numbers[1])
        if kind == "lognormal":
            return lambda stream: first * math.exp(numbers[1] * stream.gauss(0.0, 1.0))
        if kind == "exponential":
            return lambda stream: first * stream.expovariate(1.0)
        return lambda stream: stream.choice(numbers)

    def _parsed(self) -> tuple[str, list[float]]:
        kind, _, rest = self.spec.partition(":")
        try:
            numbers = [float(part) for part in rest.split(",")]
        except ValueError:
            numbers = []
        wanted = COUNTS.get(kind, len(numbers) if kind == "values" else 0)
        good = all(math.isfinite(number) and number >= 0 for number in numbers)
        if not numbers or len(numbers) != wanted or not good:
            raise ValueError(
                f"{self.spec!r} is none of const:a, uniform:a,b, lognormal:median,sigma, "
                "exponential:mean, values:a,b,... with numbers from 0 up"
            )
        return kind, numbers
