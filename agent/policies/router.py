"""Spreads turns over several policies of one kind, and outlives any of them.

    up ──a turn or a look at its health fails──► down ──a look at its health succeeds──► up
    up ──drain()──► draining: ends what it has, gets nothing new ──undrain()──► up

A turn goes to the member that has its beginning in the prefix cache: members of a group share a
prompt, turns of a rollout share all that came before. Only when that member has much more to do
than another one does the turn go elsewhere. A turn whose server dies is asked again elsewhere:
nothing of it was delivered, so nothing happens twice.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

import anyio

from patchgym.agent.policy import Completion, Policy, PolicyLoad, SampleRequest

from .background import Background
from .errors import PolicyClosed, PolicyError, PolicyTimeout, PolicyUnavailable

_REMEMBERED = 1 << 16
"""Rollouts whose member is remembered; the least recently used are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatistics:
    """A snapshot of one member."""

    up: bool
    draining: bool
    running: int
    """Turns that the router has there now."""
    turns: int
    """Turns answered."""
    failures: int
    """Turns and looks that failed."""
    why: str
    """The last failure, in a line."""


@dataclass(slots=True, eq=False)
class _Member:
    name: str
    policy: Policy
    up: bool = True
    draining: bool = False
    running: int = 0
    turns: int = 0
    failures: int = 0
    why: str = ""

    @property
    def open(self) -> bool:
        return self.up and not self.draining


class PolicyRouter:
    """Several policies as one; an async context manager. Implements `agent.Policy`.

    The members are opened and closed by whoever made them.
    """

    def __init__(
        self,
        members: Mapping[str, Policy],
        *,
        prefix_tokens: int = 1024,
        slack: int = 8,
        turn_limit: float = 1800.0,
        look_seconds: float = 2.0,
        look_limit: float = 10.0,
    ) -> None:
        """`members` by the names that errors and statistics use.

        The first `prefix_tokens` of a rollout's first context choose its member; a member may have
        `slack` turns more than the least busy before others are asked. `turn_limit` is how many
        seconds a turn may take in all, retries included; `look_seconds` lie between two looks at
        each member's health, each of at most `look_limit` seconds.
        """
        if not members:
            raise ValueError("a router needs at least one policy")
        self._members = {name: _Member(name, policy) for name, policy in members.items()}
        self._prefix_tokens, self._slack = prefix_tokens, slack
        self._turn_limit = turn_limit
        self._look_seconds, self._look_limit = look_seconds, look_limit
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._changed = anyio.Event()
        self._background = Background()

    async def __aenter__(self) -> PolicyRouter:
        """Begin to look after the members."""
        await self._background.open()
        for member in self._members.values():
            self._background.start(self._look_after, member)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop looking; members stay open, and turns in flight end."""
        await self._background.close()

    @property
    def version(self) -> int:
        """The oldest version among members that are up: no turn that starts now gets an older."""
        versions = [member.policy.version for member in self._members.values() if member.open]
        return min(versions or [member.policy.version for member in self._members.values()])

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn on one of the members.

        PolicyTimeout, naming whom the turn waited for, past `turn_limit`; a request that a member
        refuses is refused: it would be everywhere. Cancelling cancels it where it is.
        """
        if not self._background.running:
            raise PolicyClosed("the router is not open: use `async with`")
        started, culprit = time.monotonic(), "every member is down"
        while (left := started + self._turn_limit - time.monotonic()) > 0:
            member = self._choose(request)
            if member is None:
                culprit = f"every member is down: {self._reasons()}"
                changed = self._changed
                with anyio.move_on_after(left):
                    await changed.wait()
                continue
            culprit = f"{member.name} did not answer"
            with anyio.move_on_after(left):
                try:
                    return await self._ask(member, request)
                except PolicyUnavailable as error:
                    culprit = str(error)
                    self._fail(member, error)
        raise PolicyTimeout(f"no answer in {self._turn_limit:g} s: {culprit}")

    def load(self) -> PolicyLoad:
        """The members' loads together; the fullest cache."""
        loads = [member.policy.load() for member in self._members.values() if member.up]
        return PolicyLoad(
            running=sum(load.running for load in loads),
            waiting=sum(load.waiting for load in loads),
            cache_use=max((load.cache_use for load in loads), default=0.0),
            preemptions=sum(load.preemptions for load in loads),
        )

    async def drain(self, name: str, *, limit: float = 900.0) -> None:
        """Give `name` nothing new, and return when it has no turn left.

        PolicyTimeout past `limit` seconds; it stays drained until `undrain`.
        """
        member = self._member(name)
        member.draining = True
        self._note()
        with anyio.move_on_after(limit):
            while member.running:
                await self._changed.wait()
        if member.running:
            raise PolicyTimeout(f"{name} still has {member.running} turns after {limit:g} s")

    def undrain(self, name: str) -> None:
        """Give `name` turns again."""
        self._member(name).draining = False
        self._note()

    def statistics(self) -> dict[str, MemberStatistics]:
        """A snapshot of each member."""
        return {
            name: MemberStatistics(
                up=member.up,
                draining=member.draining,
                running=member.running,
                turns=member.turns,
                failures=member.failures,
                why=member.why,
            )
            for name, member in self._members.items()
        }

    def _choose(self, request: SampleRequest) -> _Member | None:
        """The member to ask; decided here, without waiting, so that no two turns see half of it."""
        members = [member for member in self._members.values() if member.open]
        if not members:
            return None
        remembered = self._homes.get(request.rollout_id)
        home = next((member for member in members if member.name == remembered), None)
        if home is None:
            key = array("q", request.tokens[: self._prefix_tokens]).tobytes()
            home = max(members, key=lambda member: _weight(member.name, key))
        least = min(members, key=lambda member: member.running)
        chosen = least if home.running > least.running + self._slack else home
        if remembered is None or chosen is home:
            self._homes[request.rollout_id] = chosen.name
        if request.rollout_id in self._homes:
            self._homes.move_to_end(request.rollout_id)
        while len(self._homes) > _REMEMBERED:
            self._homes.popitem(last=False)
        return chosen

    async def _ask(self, member: _Member, request: SampleRequest) -> Completion:
        member.running += 1
        try:
            completion = await member.policy.sample(request)
        finally:
            member.running -= 1
            self._note()
        member.turns += 1
        return completion

    async def _look_after(self, member: _Member) -> None:
        """Look at a member's health for as long as the router is open."""
        look = getattr(member.policy, "check_health", None)
        while True:
            await anyio.sleep(self._look_seconds)
            try:
                with anyio.fail_after(self._look_limit):
                    if look is not None:
                        await look()
            except TimeoutError:
                words = f"{member.name}: no sign of health in {self._look_limit:g} s"
                self._fail(member, PolicyTimeout(words))
            except PolicyError as error:
                self._fail(member, error)
            else:
                if not member.up:
                    member.up = True
                    self._note()

    def _fail(self, member: _Member, error: PolicyError) -> None:
        member.up, member.why = False, str(error)
        member.failures += 1
        self._note()

    def _note(self) -> None:
        """Wake whoever waits for a change."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _member(self, name: str) -> _Member:
        if name not in self._members:
            raise ValueError(f"no member is named {name!r}: there are {', '.join(self._members)}")
        return self._members[name]

    def _reasons(self) -> str:
        return "; ".join(
            f"{member.name} drains" if member.draining else f"{member.name}: {member.why}"
            for member in self._members.values()
        )


def _weight(name: str, key: bytes) -> bytes:
    """Rendezvous hashing: the heaviest member gets the key; losing one moves only its own keys."""
    return hashlib.blake2b(key, digest_size=16, key=name.encode()[:64]).digest()
