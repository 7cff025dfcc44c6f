"""The driver's side of task hosts: which host acts or scores what, and what its loss means.

A rollout whose host is lost ends as data, with the stop reason `host_lost`, and is retried on
another host, within `rollout.retries`. A score is asked of another host; when that fails `TRIES`
times, it is unknown.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from patchgym.agent import Policy, Straggle, Trajectory
from patchgym.agent.chat import ChatTokenizer
from patchgym.rewards import Reward
from patchgym.sandbox import PatchgymError, SandboxLost
from patchgym.sandbox.ray import EndOfTalk, HostPlan, Hosts, Line, Place, Placement, Talk
from patchgym.sandbox.ray.demand import Demand
from patchgym.trainer.domain import OnStage

from .orders import Answered, Asked, Dropped, Order, Setup, Staged, Straggles
from .section import RaySection
from .task_host import TaskHost

TRIES = 3
"""Hosts that a reward is asked of."""
AFTER = 60.0
"""Seconds past a rollout's own limit until its host counts as stuck with it."""


class Fleet:
    """Task hosts of one role."""

    def __init__(
        self,
        section: RaySection,
        setup: Callable[[int], Setup],
        *,
        resource: tuple[str, ...],
        limit: int,
        slots: int,
        tell: Callable[[str], None],
    ) -> None:
        """`setup` makes what a host of so many slots is to be; `slots` is their total."""
        self._make_setup, self._slots = setup, slots
        self._tokenizer: ChatTokenizer | None = None
        self._waiting: set[str] = set()
        """Rollouts that wait for a sandbox."""
        self.placement = Placement(capped=False)
        plan = HostPlan(
            actor=TaskHost,
            arguments=(section.silence,),
            resource=resource,
            cpus=section.cpus,
            limit=limit,
            per_node=section.per_node,
            open=self._open,
            silence=section.silence,
        )
        self._hosts = Hosts(plan, on_up=self._up, on_lost=self._down, tell=tell)
        self._demand = Demand(resource[0], section.max_hosts)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """See `Hosts.kept`."""
        demand = self._demand.followed(self.placement, lambda: len(self._waiting))
        async with self._hosts.kept(), demand:
            yield

    async def equip(self, tokenizer: ChatTokenizer) -> None:
        """Give every host what agents are made of, now and later."""
        self._tokenizer = tokenizer
        for line in tuple(self._hosts.lines.values()):
            await line.peer.call("equip", tokenizer)

    async def validate(self, tasks: Sequence[Any], progress: Callable[[int, int], None]) -> None:
        """Share the tasks out; raises what the first host to fail raises."""
        lines = list(self._hosts.lines.values())
        counts = {line.name: (0, 0) for line in lines}
        failed: list[Exception] = []

        async def validate(line: Line, ids: Sequence[str]) -> None:
            talk = line.peer.open("validate", ids)
            try:
                while True:
                    counts[line.name] = await talk.receive()
                    done, whole = zip(*counts.values(), strict=True)
                    progress(sum(done), sum(whole))
            except EndOfTalk:
                await talk.result()
            except Exception as error:  # raised below, without the group's wrapping
                failed.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for index, line in enumerate(lines):
                ids = [task.id for task in tasks[index :: len(lines)]]
                group.start_soon(validate, line, ids)
        if failed:
            raise failed[0]

    def expect(self, tasks: Sequence[Any], image_of: Callable[[Any], str]) -> None:
        """Spread what comes next over the hosts, each image to one that will be given its tasks."""
        by_image = {image_of(task): task for task in reversed(tasks)}
        for name, images in self.placement.expect(list(by_image)).items():
            if images and name in self._hosts.lines:
                self._hosts.lines[name].peer.open("expect", [by_image[each].id for each in images])

    async def act(
        self,
        order: Order,
        *,
        image: str,
        policy: Policy,
        on_stage: OnStage,
        straggle: Straggle,
    ) -> Trajectory:
        """One rollout on one host. A lost host is a trajectory that failed."""
        started = time.monotonic()
        where, place = "no host was up", None
        try:
            with anyio.fail_after(order.limits.seconds + AFTER):
                place = await self.placement.acquire(image)
                where = f"host {place.name} did not end it"
                try:
                    noted = partial(self._note, order.rollout_id, on_stage)
                    return await self._act(place, order, policy, noted, straggle)
                finally:
                    self._waiting.discard(order.rollout_id)
                    self.placement.release(place)
        except TimeoutError:
            error = f"{where} within {order.limits.seconds + AFTER:.0f} s"
        except PatchgymError as problem:
            error = f"{type(problem).__name__}: {problem}"
            if place is not None and isinstance(problem, SandboxLost):
                self.placement.shun(place)
        return Trajectory(
            rollout_id=order.rollout_id,
            task_id=order.task_id,
            seed=order.seed,
            turns=(),
            stop_reason="host_lost",
            outcome=b"",
            error=error,
            seconds=time.monotonic() - started,
        )

    async def score(self, task_id: str, image: str, trajectory: Trajectory) -> Reward:
        """The reward, from one host or the next; the same patch goes where its verdict is known."""
        problem = ""
        patch = hashlib.sha256(trajectory.outcome).hexdigest()
        for _ in range(TRIES):
            place = await self.placement.acquire(image, work=f"{task_id} {patch}")
            try:
                peer = self._line(place).peer
                reward: Reward = await peer.call("score", task_id, trajectory)
                return reward
            except SandboxLost as error:
                problem = f"{type(error).__name__}: {error}"
                self.placement.shun(place)
            finally:
                self.placement.release(place)
        return Reward.unknown(problem)

    def _note(
        self, rollout_id: str, on_stage: OnStage, stage: str, /, *, sandbox: str = ""
    ) -> None:
        """Whoever waits for a sandbox is what more hosts would help."""
        if stage == "lease wait":
            self._waiting.add(rollout_id)
        else:
            self._waiting.discard(rollout_id)
        on_stage(stage, sandbox=sandbox)

    async def _act(
        self,
        place: Place,
        order: Order,
        policy: Policy,
        on_stage: OnStage,
        straggle: Straggle,
    ) -> Trajectory:
        talk = self._line(place).peer.open("act", order)
        try:
            with straggle.scope:
                await _Turns(talk, policy, on_stage).follow()
            if straggle.asked:
                talk.send(Straggles())
            trajectory: Trajectory = await talk.result()
        except BaseException:
            talk.cancel()
            raise
        return trajectory

    def _line(self, place: Place) -> Line:
        """Raises SandboxLost when it went down meanwhile."""
        if place.name not in self._hosts.lines:
            raise SandboxLost(f"host {place.name} is lost")
        return self._hosts.lines[place.name]

    async def _open(self, line: Line) -> None:
        setup = self._make_setup(self._hosts.share(self._slots))
        await line.peer.call("setup", setup)
        if self._tokenizer is not None:
            await line.peer.call("equip", self._tokenizer)

    def _up(self, line: Line) -> None:
        self.placement.up(line.name, self._hosts.share(self._slots))

    def _down(self, line: Line, error: SandboxLost) -> None:
        self.placement.down(line.name)


class _Turns:
    """The items of a rollout's talk: its stages, and the turns that it asks for."""

    def __init__(self, talk: Talk, policy: Policy, on_stage: OnStage) -> None:
        self._talk, self._policy, self._on_stage = talk, policy, on_stage
        self._scopes: dict[int, anyio.CancelScope] = {}

    async def follow(self) -> None:
        """Until the rollout's end. Raises SandboxLost when its host is."""
        lost: PatchgymError | None = None
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    item = await self._talk.receive()
                    if isinstance(item, Staged):
                        self._on_stage(item.stage, sandbox=item.sandbox)
                    elif isinstance(item, Asked):
                        scope = self._scopes[item.number] = anyio.CancelScope()
                        tasks.start_soon(self._sample, item, scope)
                    elif isinstance(item, Dropped) and item.number in self._scopes:
                        self._scopes[item.number].cancel()
            except EndOfTalk:
                pass
            except PatchgymError as error:
                lost = error
            tasks.cancel_scope.cancel()
        if lost is not None:
            raise lost

    async def _sample(self, asked: Asked, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                self._talk.send(Answered(asked.number, await self._policy.sample(asked.request)))
        except Exception as failure:  # the rollout's own boundary makes it data, over there
            words = f"{type(failure).__name__}: {failure}"
            self._talk.send(Answered(asked.number, error=words))
        finally:
            self._scopes.pop(asked.number, None)
