"""Holds any policy to the protocol: coroutines that raise BrokenPromise, in words, or return.

Run them against a new policy as `await check_policy(Subject(policy=..., context=..., ...))`. The
kit's own tests run them on the scripted policy, the embedded sampler, vLLM as a server and in
process, the SGLang form, and the router.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import anyio

from patchgym.agent.policy import (
    Completion,
    CompletionError,
    Policy,
    PolicyLoad,
    SampleRequest,
    check_completion,
)

TURN_LIMIT = 300.0
"""Seconds that any one check may take."""


class BrokenPromise(AssertionError):
    """A policy breaks the protocol; says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A policy to check, and what has to be known of it."""

    policy: Policy
    context: tuple[int, ...]
    """Ids that the model can continue with at least `tokens` of its own."""
    vocabulary: int
    """Ids run from 0 to this, exclusive."""
    decode: Callable[[Sequence[int]], str]
    """Text of ids, control tokens left out."""
    window: int | None = None
    """The longest context and turn together; None where there is no limit."""
    draws: bool = True
    """Whether seeds change what is sampled: not so for a script."""
    stops: bool = True
    """Whether it honours stop texts."""
    slow: bool = True
    """Whether a turn of `long_tokens` takes long enough to be cancelled in the middle."""
    refuses: bool = True
    """Whether it refuses requests that make no sense: a script answers anything."""
    tokens: int = 12
    """Length of an ordinary turn."""
    long_tokens: int = 400
    """Length of a turn that is to be cancelled."""
    at_once: int = 12
    """Turns sampled together."""

    def request(self, seed: int = 0, temperature: float = 1.0) -> SampleRequest:
        """An ordinary request."""
        return SampleRequest(
            rollout_id=f"check-{seed}",
            tokens=self.context,
            max_new_tokens=self.tokens,
            seed=seed,
            temperature=temperature,
        )


async def check_policy(subject: Subject) -> None:
    """Run every check; BrokenPromise names the first one that fails."""
    for check in CHECKS:
        name = check.__name__
        try:
            with anyio.fail_after(TURN_LIMIT):
                await check(subject)
        except TimeoutError as error:
            raise BrokenPromise(f"{name}: not over in {TURN_LIMIT:g} s") from error
        except CompletionError as error:
            raise BrokenPromise(f"{name}: {error}") from error
        except BrokenPromise as error:
            raise BrokenPromise(f"{name}: {error}") from error


async def check_shape(subject: Subject) -> None:
    """Ids in range, one logprob each, no more than asked for, at temperatures that differ."""
    for temperature in (1.0, 0.5):
        completion = await _sample(subject, subject.request(1, temperature))
        largest = max(completion.tokens)
        _hold(largest < subject.vocabulary, f"id {largest} is outside the vocabulary")


async def check_length(subject: Subject) -> None:
    """`max_new_tokens` is kept, and named as the reason."""
    for limit in (1, 3):
        completion = await _sample(subject, replace(subject.request(2), max_new_tokens=limit))
        _hold(
            len(completion.tokens) == limit or completion.finish != "length",
            f"{len(completion.tokens)} of {limit} tokens, and `length` given as the reason",
        )


async def check_version(subject: Subject) -> None:
    """A turn names the version of the weights; each of its tokens has one."""
    before = subject.policy.version
    completion = await _sample(subject, subject.request(3))
    versions = completion.versions()
    _hold(len(versions) == len(completion.tokens), "versions don't cover the tokens")
    _hold(
        before <= completion.policy_version <= subject.policy.version,
        f"policy_version {completion.policy_version} is not between {before} and"
        f" {subject.policy.version}",
    )


async def check_seed(subject: Subject) -> None:
    """The same seed gives the same draw; other seeds give others."""
    first = await _sample(subject, subject.request(4))
    again = await _sample(subject, subject.request(4))
    _hold(first.tokens == again.tokens, "the same seed gave another draw")
    if subject.draws:
        others = {(await _sample(subject, subject.request(seed))).tokens for seed in range(5, 10)}
        _hold(len(others) > 1, "five seeds gave one and the same draw: a group has no gradient")


async def check_greedy(subject: Subject) -> None:
    """At temperature 0 the seed changes nothing, and the choice was certain: logprob 0."""
    first = await _sample(subject, subject.request(11, 0.0))
    second = await _sample(subject, subject.request(12, 0.0))
    _hold(first.tokens == second.tokens, "temperature 0 depends on the seed")
    _hold(not any(first.logprobs), "a certain choice has a log-probability other than 0")


async def check_stop(subject: Subject) -> None:
    """The token that completes a stop text is kept, and is the last."""
    if not subject.stops:
        return
    whole = await _sample(subject, subject.request(0, 0.0))
    text = subject.decode(whole.tokens)
    _hold(len(text) >= 3, "the context gives no text to stop at: choose another")
    middle = len(text) // 3
    stop = text[middle : middle + 3]
    cut = await _sample(subject, replace(subject.request(0, 0.0), stop=(stop,)))
    _hold(cut.finish == "stop", f"a stop text was sampled and `{cut.finish}` is the reason")
    _hold(stop in subject.decode(cut.tokens), "the token that completes the stop text is missing")
    _hold(stop not in subject.decode(cut.tokens[:-1]), "tokens follow the stop text")
    _hold(whole.tokens[: len(cut.tokens)] == cut.tokens, "a stop text changed what was sampled")


async def check_many(subject: Subject) -> None:
    """Many at once are all answered, each with its own draw."""
    answers: dict[int, Completion] = {}

    async def one(seed: int) -> None:
        answers[seed] = await _sample(subject, subject.request(seed))

    async with anyio.create_task_group() as group:
        for seed in range(subject.at_once):
            group.start_soon(one, seed)
    _hold(len(answers) == subject.at_once, "a turn was not answered")
    if subject.draws:
        _hold(len({a.tokens for a in answers.values()}) > 1, "turns at once got one draw")


async def check_cancellation(subject: Subject) -> None:
    """A cancelled turn gives its place back, and the policy answers others afterwards."""
    if subject.slow:
        long = replace(subject.request(20), max_new_tokens=subject.long_tokens)
        async with anyio.create_task_group() as group:
            for seed in range(subject.at_once):
                group.start_soon(subject.policy.sample, replace(long, seed=seed))
            await _until(lambda: subject.policy.load().running > 0, "load() sees no turn run")
            group.cancel_scope.cancel()
        await _until(
            lambda: not subject.policy.load().running + subject.policy.load().waiting,
            "cancelled turns keep their places",
        )
    await _sample(subject, subject.request(21))


async def check_oversize(subject: Subject) -> None:
    """A context that doesn't fit is refused with a ValueError; nothing is cut silently."""
    if subject.window is None:
        return
    filler = subject.context * (subject.window // len(subject.context) + 1)
    request = replace(subject.request(30), tokens=filler[: subject.window])
    try:
        await subject.policy.sample(request)
    except ValueError:
        return
    raise BrokenPromise("a context longer than the window was answered: what was cut?")


async def check_nonsense(subject: Subject) -> None:
    """Requests that make no sense are refused, and harm nobody."""
    if not subject.refuses:
        return
    plain = subject.request(31)
    wrong = (replace(plain, tokens=()), replace(plain, max_new_tokens=0))
    for request in wrong:
        try:
            await subject.policy.sample(request)
        except ValueError:
            continue
        raise BrokenPromise(f"this was answered: {len(request.tokens)} tokens of context,"
                            f" {request.max_new_tokens} to sample")  # fmt: skip
    await _sample(subject, plain)


async def check_load(subject: Subject) -> None:
    """`load` is there at once and says something possible."""
    load = subject.policy.load()
    _hold(isinstance(load, PolicyLoad), "load() is no PolicyLoad")
    possible = load.running >= 0 and load.waiting >= 0 and 0 <= load.cache_use <= 1
    _hold(possible, f"load() says the impossible: {load}")


CHECKS: tuple[Callable[[Subject], Awaitable[None]], ...] = (
    check_shape,
    check_length,
    check_version,
    check_seed,
    check_greedy,
    check_stop,
    check_many,
    check_cancellation,
    check_oversize,
    check_nonsense,
    check_load,
)
"""All checks, in the order in which they are run."""


async def _sample(subject: Subject, request: SampleRequest) -> Completion:
    completion = await subject.policy.sample(request)
    return check_completion(request, completion)


async def _until(reached: Callable[[], bool], otherwise: str) -> None:
    """Look until it is so: what a policy says of itself may be a poll old."""
    with anyio.move_on_after(30):
        while not reached():  # noqa: ASYNC110 - nobody tells us, that is what is looked for
            await anyio.sleep(0.05)
        return
    raise BrokenPromise(otherwise)


def _hold(promise: bool, otherwise: str) -> None:
    if not promise:
        raise BrokenPromise(otherwise)
