"""Process 0's side: the other processes, and commands that all carry out together.

    with hosts.turn("save", wait=True):     told to all; one turn at a time
        ...                                 process 0's own part, with its collectives
                                            then everyone's answer is waited for

A process that is lost breaks the turn under way. A collective that waits for it may never end: past
`GRACE` seconds this process leaves at once, and says why.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import numpy as np

from patchgym.trainer.stopping import leave

from .errors import HostLost
from .wire import Line, LineLost, LineSilent

ANSWER_LIMIT = 600.0
"""Seconds after process 0 within which the others must be done with a command."""
LOAD_LIMIT = 3600.0
"""Seconds that loading the model may take them longer than process 0."""
GRACE = 60.0
"""Seconds that a collective may take to notice that a process is gone."""
_UNLIKE = "have all machines the same model, version of patchgym and JAX, and devices?"
_NOTICE = 5.0
"""Seconds after an error within which the loss of a process, its cause, shows."""


class Host:
    """One of the other processes."""

    def __init__(self, connect: Callable[[Callable[[str], None]], Line]) -> None:
        self.index, self.name = -1, "a process"
        self.on_lost: Callable[[Host], None] = lambda host: None
        self.line = connect(lambda words: self.on_lost(self))

    def hello(self, limit: float) -> dict[str, Any]:
        """Learn who it is; what it said of itself."""
        said = self.line.receive(limit).fields
        self.index = int(said["index"])
        self.name = f"process {self.index} of the learner ({said['machine']}, pid {said['pid']})"
        return said


@dataclass(slots=True)
class Turn:
    """One command to all."""

    found: list[str] = field(default_factory=list)
    """What came of it here, in words that must be those of every process; empty: of no matter."""


class Hosts:
    """All other processes, as process 0 sees them."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = tuple(hosts)
        self._turn = threading.RLock()
        self._deep = 0
        self._idle = threading.Event()
        self._idle.set()
        self._later: deque[tuple[Callable[[], None], str, dict[str, Any]]] = deque()
        self._ended = False
        self._losses: list[str] = []
        self._noticed = threading.Event()
        for host in self._hosts:
            host.on_lost = self._lost
            if host.line.lost:
                self._lost(host)

    @property
    def lost(self) -> str:
        """Who is gone, and how that showed; empty while all are there."""
        return "; ".join(self._losses)

    @contextmanager
    def turn(
        self,
        kind: str,
        arrays: Sequence[np.ndarray] = (),
        *,
        limit: float = ANSWER_LIMIT,
        **fields: Any,
    ) -> Iterator[Turn]:
        """Have all others do `kind`, while the body does this process's part.

        Raises HostLost when one of them can't, or comes to something else; the body's own error
        otherwise. Turns within a turn are part of it, and not told.
        """
        turn = Turn()
        with self._turn:
            if self._deep:
                yield turn
                return
            self._deep = 1
            self._idle.clear()
            try:
                self._flush()
                self.tell(kind, arrays, **fields)
                try:
                    yield turn
                except Exception as error:
                    self._blame(error)
                    self._answers(limit, None)
                    raise
                self._answers(limit, turn.found)
            finally:
                self._deep = 0
                self._idle.set()

    def tell(self, kind: str, arrays: Sequence[np.ndarray] = (), **fields: Any) -> None:
        """Send one message to all; HostLost when one does not take it."""
        for host in self._hosts:
            if host.line.lost:
                raise HostLost(self._words(host, host.line.lost))
            try:
                host.line.send(kind, arrays, **fields)
            except LineLost as error:
                raise HostLost(self._words(host, str(error))) from None

    def later(self, here: Callable[[], None], kind: str, **fields: Any) -> None:
        """At the beginning of the next turn do `here`, and tell `kind`; waits for nothing."""
        self._later.append((here, kind, fields))

    async def watch(self) -> None:
        """Raise HostLost soon after a process is lost; to be run beside the training."""
        while not self.lost:  # noqa: ASYNC110, a thread sets it
            await anyio.sleep(1.0)
        raise HostLost(self.lost)

    def end(self, *, clean: bool) -> None:
        """Have the others leave, as far as they are there; in order when the training is over."""
        self._ended = True
        for host in self._hosts:
            with suppress(LineLost):
                host.line.send("end", clean=clean)

    def _flush(self) -> None:
        while self._later:
            here, kind, fields = self._later.popleft()
            here()
            self.tell(kind, **fields)

    def _answers(self, limit: float, found: list[str] | None) -> None:
        """Wait for all, who must have `found` the same; None where the turn failed here."""
        for host in self._hosts:
            try:
                said = host.line.receive(limit)
            except (LineLost, LineSilent) as error:
                raise HostLost(self._words(host, str(error))) from None
            fault = said.fields.get("error", "")
            if fault and found is not None:
                raise HostLost(self._words(host, str(fault)))
            theirs = said.fields.get("found")
            if found and theirs and theirs != found:
                raise HostLost(f"{host.name} has {theirs} where this one has {found}: {_UNLIKE}")

    def _blame(self, error: BaseException) -> None:
        """Raise HostLost when `error` came of a process that is gone."""
        if isinstance(error, HostLost):
            raise error
        if isinstance(error, RuntimeError) and self._noticed.wait(_NOTICE):
            raise HostLost(self.lost) from error

    def _lost(self, host: Host) -> None:
        if self._ended:
            return
        self._losses.append(self._words(host, host.line.lost))
        self._noticed.set()
        threading.Thread(target=self._break, name="lost host", daemon=True).start()

    def _break(self) -> None:
        """Leave, unless the turn under way ends by itself."""
        if not self._idle.wait(GRACE):
            leave(f"{self.lost}; and what waited for it did not end in {GRACE:.0f} s", 2)

    def _words(self, host: Host, how: str) -> str:
        return (
            f"{host.name} is gone: {how}; look at what it said, then start all processes again "
            "with --resume"
        )
