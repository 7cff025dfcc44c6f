"""The model's sandbox slots: leased, recycled on their host's cores, and leased again.

As `sandbox.Pool` does it: slots are spread evenly over hosts; a waiting caller gets the first that
is ready, of several the one on the host with the fewest leases.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .least import Least
from .meters import Level, Meters

if TYPE_CHECKING:
    from collections.abc import Callable

    from simpy import Environment
    from simpy.events import Event


class Sandboxes:
    """One pool over all hosts."""

    def __init__(
        self,
        env: Environment,
        hosts: int,
        slots: int,
        *,
        recycle: Callable[[int], Event],
        meters: Meters,
        name: str,
    ) -> None:
        """`recycle(host)` happens when a host has a slot's next sandbox ready; `name` is that of
        the wait for a lease."""
        self._env = env
        self._recycle = recycle
        self._meters = meters
        self._name = name
        self._ready = [len(range(host, slots, hosts)) for host in range(hosts)]
        self._leased = [0] * hosts
        self._best = Least(hosts)
        for host in range(hosts):
            self._note(host)
        self._line: deque[tuple[float, Event]] = deque()
        self.busy = Level(env)
        """Slots that are leased or being recycled."""

    def lease(self) -> Event:
        """An event whose value is the number of the host."""
        event = self._env.event()
        self._line.append((self._env.now, event))
        self._serve()
        return event

    def release(self, host: int) -> None:
        """The lease is over: recycle, then ready."""
        self._leased[host] -= 1
        self._note(host)
        made = self._recycle(host)
        assert made.callbacks is not None
        made.callbacks.append(lambda event: self._made(host))

    def _made(self, host: int) -> None:
        self._ready[host] += 1
        self._note(host)
        self.busy.add(-1)
        self._serve()

    def _note(self, host: int) -> None:
        """How many leases a host with something ready has."""
        self._best.set(host, self._leased[host] if self._ready[host] else None)

    def _serve(self) -> None:
        while self._line:
            host = self._best.first()
            if host is None:
                return
            since, event = self._line.popleft()
            self._ready[host] -= 1
            self._leased[host] += 1
            self._note(host)
            self.busy.add(1)
            self._meters.wait(self._name, since)
            event.succeed(host)
