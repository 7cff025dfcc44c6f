"""The policy as rollouts on a host see it: every turn is asked of the driver, in the rollout's own
talk."""

from __future__ import annotations

import anyio

from patchgym.agent import Completion, PolicyLoad, SampleRequest, Straggle
from patchgym.sandbox.ray import EndOfTalk, Talk

from .orders import Answered, Asked, Dropped, Straggles


class PolicyFailed(Exception):
    """The driver's policy raised; the message says what."""


class HostPolicy:
    """Implements `agent.Policy` for one rollout; `listen` must run beside it."""

    version = -1
    """Not known here: every completion says its own."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._count = 0
        self._answers: dict[int, Answered] = {}
        self._came = anyio.Event()

    async def sample(self, request: SampleRequest) -> Completion:
        """Ask the driver. Raises PolicyFailed with what the policy raised there."""
        self._count += 1
        number = self._count
        self._talk.send(Asked(number, request))
        try:
            while number not in self._answers:
                await self._came.wait()
        except anyio.get_cancelled_exc_class():
            self._talk.send(Dropped(number))
            raise
        answer = self._answers.pop(number)
        if answer.completion is None:
            raise PolicyFailed(answer.error)
        return answer.completion

    def load(self) -> PolicyLoad:
        """Admission is the driver's."""
        return PolicyLoad()

    async def listen(self, straggle: Straggle) -> None:
        """Take the driver's items until cancelled."""
        while True:
            try:
                item = await self._talk.receive()
            except EndOfTalk:
                return
            if isinstance(item, Straggles):
                straggle.cancel()
            elif isinstance(item, Answered):
                self._answers[item.number] = item
                self._came.set()
                self._came = anyio.Event()
