"""What the model writes down while it runs, from the end of the warm-up on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simpy import Environment


class Level:
    """A number that changes by steps, and its integral over time."""

    def __init__(self, env: Environment, value: float = 0.0) -> None:
        self._env = env
        self.value = value
        self._since = env.now
        self._area = 0.0

    def add(self, change: float) -> None:
        """Change it from now on."""
        self._area += self.value * (self._env.now - self._since)
        self._since = self._env.now
        self.value += change

    def area(self) -> float:
        """Its integral since the start, in its unit times seconds."""
        return self._area + self.value * (self._env.now - self._since)


class Meters:
    """Counts, waits and integrals of a window of time."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.since = env.now
        self.open = False
        """The warm-up is over."""
        self.counts: Counter[str] = Counter()
        self.waits: dict[str, list[float]] = defaultdict(list)
        """Seconds, by what was waited for; of waits that ended in the window."""
        self._areas: dict[str, Callable[[], float]] = {}
        self._before: dict[str, float] = {}

    def watch(self, name: str, area: Callable[[], float]) -> None:
        """Report the mean of what `area` is the integral of."""
        self._areas[name] = area

    def begin(self) -> None:
        """The window begins now; what was noted so far is forgotten."""
        self.since, self.open = self._env.now, True
        self.counts.clear()
        self.waits.clear()
        self._before = {name: area() for name, area in self._areas.items()}

    def wait(self, name: str, since: float) -> None:
        """Somebody who waited for `name` since then waits no more."""
        self.waited(name, self._env.now - since)

    def waited(self, name: str, seconds: float) -> None:
        """As `wait`, by how long."""
        if self.open:
            self.waits[name].append(seconds)

    @property
    def seconds(self) -> float:
        """Length of the window so far."""
        return float(self._env.now - self.since)

    def mean(self, name: str) -> float:
        """Of what is watched under that name, over the window."""
        return (self._areas[name]() - self._before.get(name, 0.0)) / self.seconds
