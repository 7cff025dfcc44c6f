"""The hosts of a cluster: an actor on every fit node, kept for as long as the node is there.

node appears ──► actor ──► hello ──► open ──► up ──► lost ──► again, after a pause
                                                 └─ node gone ──► forgotten
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.abc

from patchgym.sandbox.errors import PatchgymError, SandboxLost

from .cluster import ClusterError, Node, import_ray, nodes
from .frames import ERRORS
from .line import Line, reason_of

LOOK = 2.0  # seconds between looks for nodes
FIRST_PAUSE = 1.0  # seconds before a lost host is tried again; doubles each time
LONGEST_PAUSE = 30.0
CLOSE_LIMIT = 75.0  # seconds for a host to give everything back; a pool takes up to 60
SILENCE = 20.0
"""Seconds without a word after which a host, or to a host the driver, counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What hosts are to be."""

    actor: type
    """A subclass of `Conversations`; made with `arguments`."""
    arguments: tuple[object, ...] = ()
    resource: tuple[str, ...]
    """Custom resource of the nodes that are meant, and what stands in for it where no node declares
    it, in order; where none of these is declared, all nodes are meant."""
    cpus: float = 0.0
    """Processors that Ray sets aside for one."""
    limit: int = 0
    """Nodes at most; 0: as many as there are."""
    per_node: int = 1
    """Hosts on a node; more than one is for simulations."""
    open: Callable[[Line], Awaitable[None]]
    """Makes a host ready."""
    silence: float = SILENCE


class Hosts:
    """Keeps hosts up; `async with hosts.kept():` for as long as they are needed."""

    def __init__(
        self,
        plan: HostPlan,
        *,
        on_up: Callable[[Line], None],
        on_lost: Callable[[Line, SandboxLost], None],
        tell: Callable[[str], None] = lambda words: None,
    ) -> None:
        """`on_up` and `on_lost` are told of each host; `tell` of what a person should know."""
        self._plan, self._up, self._lost, self._tell = plan, on_up, on_lost, tell
        self.lines: dict[str, Line] = {}
        """Hosts that are up, by name."""
        self._tended: set[str] = set()
        """Names of hosts that are up, or may come up."""
        self._first_count = 0
        self._errors: dict[str, BaseException] = {}
        self._tried = anyio.Event()
        self._closing = False

    def share(self, total: int) -> int:
        """What one host gets of `total`: as much as each of those that were there at first."""
        if not self._first_count:
            self._first_count = len(self._tended)
        return math.ceil(total / max(self._first_count, 1))

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Hosts on every fit node, now and later; on entry at least one is up, and every other was
        tried. Raises what the worst of them said when none is: ClusterError without fit nodes."""
        own: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._look(tasks)
                    await self._first()
                    tasks.start_soon(self._keep_looking, tasks)
                    yield
                except BaseException as error:
                    own = error
                    raise
                finally:
                    self._closing = True
                    with anyio.CancelScope(shield=True):
                        await self._close()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if own is None or [*group.exceptions] != [own]:
                raise
            raise own from None  # the caller's own exception, which needs no wrapping

    async def _first(self) -> None:
        while self._tended - self.lines.keys() - self._errors.keys():
            self._tried = anyio.Event()
            await self._tried.wait()
        if not self.lines:
            errors = list(self._errors.values())
            # A node that is dying says nothing of why the others did not come up.
            raise next((each for each in errors if not isinstance(each, SandboxLost)), errors[0])

    async def _keep_looking(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.sleep(LOOK)
            try:
                await self._look(tasks)
            except PatchgymError as error:
                self._tell(str(error))

    async def _look(self, tasks: anyio.abc.TaskGroup) -> None:
        found = await nodes(self._plan.resource)
        if not found:
            raise ClusterError(
                f"no node of the Ray cluster declares {self._plan.resource[0]!r} and is alive: "
                f"start one with --resources '{{\"{self._plan.resource[0]}\": 1}}'"
            )
        for node in found:
            room = (self._plan.limit or math.inf) * self._plan.per_node
            for host in self._on(node):
                if host.name not in self._tended and len(self._tended) < room:
                    self._tended.add(host.name)
                    tasks.start_soon(self._tend, host)

    def _on(self, node: Node) -> list[Node]:
        """The hosts of a node, by names of their own."""
        if self._plan.per_node == 1:
            return [node]
        return [replace(node, name=f"{node.name}#{index}") for index in range(self._plan.per_node)]

    async def _tend(self, node: Node) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._closing:
                if await self._live(node):
                    pause = FIRST_PAUSE
                if self._closing or not await self._is_alive(node):
                    return
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            self._tended.discard(node.name)
            self._errors.pop(node.name, None)

    async def _is_alive(self, node: Node) -> bool:
        return any(each.id == node.id for each in await nodes(self._plan.resource))

    async def _live(self, node: Node) -> bool:
        """One life of a host; whether it was up at all."""
        actor = self._make(node)
        line = Line(actor, node.name, silence=self._plan.silence)
        was_up, error = False, SandboxLost("it was closed")
        try:
            await line.begin()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._ready, line)
                error = await line.run()
                was_up = self.lines.pop(node.name, None) is not None
                tasks.cancel_scope.cancel()
            if was_up and not self._closing:
                self._lost(line, error)
                self._tell(f"{error}; what it held is tried elsewhere")
            elif not was_up:
                self._failed(node, error)
        except PatchgymError as problem:
            self._failed(node, problem)
        except BaseExceptionGroup as group:
            only = _leaf(group)
            if not isinstance(only, (PatchgymError, *ERRORS.values())):
                raise
            self._failed(node, only)
        finally:
            if not self._closing:
                with anyio.CancelScope(shield=True):
                    await _kill(actor)
        return was_up

    async def _ready(self, line: Line) -> None:
        await self._plan.open(line)
        self.lines[line.name] = line
        self._errors.pop(line.name, None)
        self._up(line)
        self._tried.set()

    def _failed(self, node: Node, error: BaseException) -> None:
        if node.name not in self._errors:
            self._tell(f"host {node.name}: {error}")
        self._errors[node.name] = error
        self._tried.set()

    def _make(self, node: Node) -> Any:
        ray = import_ray()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        made = ray.remote(self._plan.actor).options(
            num_cpus=self._plan.cpus,
            max_concurrency=10_000,
            scheduling_strategy=there,
        )
        return made.remote(*self._plan.arguments)

    async def _close(self) -> None:
        """Have every host give back what it holds; those that don't answer end with Ray."""

        async def close(line: Line) -> None:
            ray = import_ray()
            try:
                with anyio.move_on_after(CLOSE_LIMIT):
                    await line._actor.close.remote()
            except ray.exceptions.RayError as error:
                self._tell(f"host {line.name} did not close: {reason_of(error)}")
            await _kill(line._actor)

        async with anyio.create_task_group() as tasks:
            for line in self.lines.values():
                tasks.start_soon(close, line)


async def _kill(actor: Any) -> None:
    """What an actor's process had in sandboxes ends with the process (see the supervisor)."""
    await anyio.to_thread.run_sync(lambda: import_ray().kill(actor, no_restart=True))


def _leaf(error: BaseException) -> BaseException:
    """The one error in a group; the group itself where there are more."""
    if not isinstance(error, BaseExceptionGroup) or len(error.exceptions) > 1:
        return error
    return next(map(_leaf, error.exceptions), error)
