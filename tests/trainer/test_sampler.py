"""Every completion is what one pass of the learner's decoder says, whatever happened meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import TINY, byte_tokenizer, expected_logprobs

from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.sampler import (
    ContextOverflow,
    JaxSampler,
    SamplerError,
    SamplerStatistics,
    kernels,
    kv_cache,
)
from patchgym.trainer.sampler.draw import choose
from patchgym.trainer.sampler_config import Dtype, SamplerConfig

NEAR: dict[Dtype, float] = {"float32": 1e-3, "bfloat16": 0.05}
"""How far a logprob may be from the learner's at temperature 1."""

BOTH = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])

TOKENIZER = byte_tokenizer()
OLD, NEW = init_params(TINY, 0), init_params(TINY, 1)
PROMPT = tuple(TOKENIZER.encode("Mend the function below, and say nothing else:\n"))


@asynccontextmanager
async def _sampler(
    *,
    slots: int = 4,
    params: Params = OLD,
    prefix_cache_mib: int = 64,
    steps: int = 8,
    dtype: Dtype = "float32",
) -> AsyncIterator[JaxSampler]:
    config = SamplerConfig(
        slots=slots,
        context=512,
        steps_per_launch=steps,
        prefix_cache_mib=prefix_cache_mib,
        dtype=dtype,
        compilation_cache="",
    )
    async with JaxSampler(config, TINY, params, TOKENIZER) as sampler:
        yield sampler


def _request(
    seed: int = 0, *, tokens: Sequence[int] = PROMPT, new: int = 24, temperature: float = 1.0
) -> SampleRequest:
    return SampleRequest(
        rollout_id=str(seed),
        tokens=tuple(tokens),
        max_new_tokens=new,
        seed=seed,
        temperature=temperature,
    )


async def _all(sampler: JaxSampler, requests: Sequence[SampleRequest]) -> list[Completion]:
    """Completions of requests that run side by side."""
    found: dict[int, Completion] = {}

    async def one(place: int, request: SampleRequest) -> None:
        found[place] = await sampler.sample(request)

    async with anyio.create_task_group() as group:
        for place, request in enumerate(requests):
            group.start_soon(one, place, request)
    return [found[place] for place in range(len(requests))]


async def _until(sampler: JaxSampler, reached: Callable[[SamplerStatistics], bool]) -> None:
    """Give the loop up until the sampler's thread got that far."""
    with anyio.fail_after(60):
        while not reached(sampler.statistics()):
            await anyio.lowlevel.checkpoint()


def _off(params: Params, request: SampleRequest, completion: Completion) -> float:
    """How far a completion's logprobs are from one pass of the decoder, at most.

    Times the temperature, which divides the logits and what they are off by.
    """
    expected = expected_logprobs(TINY, params, request, completion)
    off = np.abs(expected - np.asarray(completion.logprobs)).max()
    return float(off * request.temperature)


@BOTH
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_logprobs_are_the_decoders_at_any_temperature(dtype: Dtype) -> None:
    requests = [_request(seed, temperature=1.0 + seed % 3 / 2) for seed in range(11)]
    async with _sampler(dtype=dtype) as sampler:
        completions = await _all(sampler, requests)
    for request, completion in zip(requests, completions, strict=True):
        assert 1 <= len(completion.tokens) <= 24
        assert len(completion.logprobs) == len(completion.tokens)
        assert _off(OLD, request, completion) < NEAR[dtype]


@BOTH
async def test_a_second_turn_goes_on_from_the_prefix_cache(dtype: Dtype) -> None:
    async with _sampler(dtype=dtype) as sampler:
        first = _request(1)
        completion = await sampler.sample(first)
        before = sampler.statistics()
        observation = TOKENIZER.encode("<|im_end|>\n<|im_start|>user\nIt fails still.")
        second = _request(2, tokens=(*first.tokens, *completion.tokens, *observation))
        again = await sampler.sample(second)
        after = sampler.statistics()
    assert _off(OLD, second, again) < NEAR[dtype]
    known = len(first.tokens) + len(completion.tokens) - 1
    assert after.cached_tokens - before.cached_tokens == known
    assert after.prefill_tokens - before.prefill_tokens == len(second.tokens) - 1 - known


async def test_a_group_reads_its_prompt_once() -> None:
    async with _sampler(slots=8) as sampler:
        await _all(sampler, [_request(seed) for seed in range(8)])
        counts = sampler.statistics()
    assert counts.prefill_tokens == len(PROMPT) - 1
    assert counts.cached_tokens == 7 * (len(PROMPT) - 1)


async def test_without_a_prefix_cache_the_answers_are_the_same() -> None:
    requests = [_request(seed) for seed in range(3)]
    async with _sampler() as sampler:
        cached = await _all(sampler, requests)
    async with _sampler(prefix_cache_mib=0) as sampler:
        computed = await _all(sampler, requests)
        assert sampler.statistics().cached_tokens == 0
    assert [c.tokens for c in cached] == [c.tokens for c in computed]


@BOTH
async def test_new_weights_start_from_a_clean_prefix_cache(dtype: Dtype) -> None:
    async with _sampler(dtype=dtype) as sampler:
        await sampler.sample(_request())
        await sampler.publish(NEW, 7)
        assert sampler.version == 7
        completion = await sampler.sample(_request())
        assert sampler.statistics().cached_tokens == 0
    assert completion.policy_version == 7
    assert _off(NEW, _request(), completion) < NEAR[dtype]


@BOTH
async def test_running_turns_end_on_the_weights_they_began_with(dtype: Dtype) -> None:
    # Nearly greedy, so that it goes round in circles and samples no end of turn.
    long, short = _request(3, new=450, temperature=0.1), _request(4)
    found: list[Completion] = []
    async with _sampler(dtype=dtype, steps=1) as sampler:

        async def old() -> None:
            found.append(await sampler.sample(long))

        async with anyio.create_task_group() as group:
            group.start_soon(old)
            await _until(sampler, lambda counts: counts.sampled_tokens > 0)
            await sampler.publish(NEW, 1)
            assert sampler.statistics().active == 1
            found.append(await sampler.sample(short))
    new, kept = found  # the new turn was done first
    assert (kept.policy_version, new.policy_version) == (0, 1)
    assert _off(OLD, long, kept) < NEAR[dtype] < _off(NEW, long, kept)
    assert _off(NEW, short, new) < NEAR[dtype]


@BOTH
async def test_published_weights_are_a_copy(dtype: Dtype) -> None:
    async with _sampler(dtype=dtype) as sampler:
        params = jax.tree.map(lambda array: array + 0, NEW)
        await sampler.publish(params, 1)
        for array in jax.tree.leaves(params):
            array.delete()
        completion = await sampler.sample(_request())
    assert _off(NEW, _request(), completion) < NEAR[dtype]


async def test_an_older_version_is_refused() -> None:
    async with _sampler() as sampler:
        with pytest.raises(ValueError, match="version 0 is not newer than 0"):
            await sampler.publish(NEW, 0)


async def test_a_draw_depends_on_its_seed_and_not_on_its_neighbours() -> None:
    async with _sampler(slots=8) as sampler:
        alone = await sampler.sample(_request(5))
        others = [_request(seed, new=40) for seed in range(20, 30)]
        crowd = await _all(sampler, [*others, _request(5)])
        assert crowd[-1].tokens == alone.tokens
        assert len({completion.tokens for completion in crowd}) == len(crowd)


def test_draws_spread_evenly_give_each_token_its_probability() -> None:
    logits = np.random.default_rng(0).normal(size=260).astype(np.float32) * 3
    draws = (np.arange(20_000, dtype=np.float32) + 0.5) / 20_000
    for temperature in (0.7, 1.0, 2.0):
        tokens, logprobs = choose(
            jnp.broadcast_to(jnp.asarray(logits), (len(draws), 260)),
            jnp.asarray(draws),
            jnp.full(len(draws), temperature),
        )
        shares = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        counts = np.bincount(np.asarray(tokens), minlength=260) / len(draws)
        assert np.abs(counts - shares).max() < 2e-4
        np.testing.assert_allclose(logprobs, np.log(shares[np.asarray(tokens)]), atol=1e-4)


@BOTH
def test_tokens_come_as_often_as_their_logprobs_say(dtype: Dtype) -> None:
    rows = 512
    draws = (jnp.arange(rows, dtype=jnp.float32) + 0.5) / rows
    _, tokens, logprobs = kernels.decode(
        TINY,
        kernels.lay_out(TINY, OLD, dtype),
        [kv_cache.empty_cache(TINY, rows, 16)],
        jnp.full(rows, PROMPT[0]),
        jnp.zeros(rows, jnp.int32),
        draws[None],
        jnp.full(rows, 0.8),
    )
    found, places, counts = np.unique(np.asarray(tokens), return_index=True, return_counts=True)
    assert len(found) > 50
    said = np.exp(np.asarray(logprobs)[0, places])
    # Evenly spread draws are off by less than one on either side of a token's share.
    assert np.abs(counts - said * rows).max() < 1.01


def test_no_draw_takes_an_impossible_token() -> None:
    logits = np.full((3, 260), -np.inf, np.float32)
    logits[:, [5, 131]] = 0.0
    below_one = np.nextafter(np.float32(1), np.float32(0))
    tokens, _ = choose(jnp.asarray(logits), jnp.asarray([0.0, 0.5, below_one]), jnp.ones(3))
    assert np.asarray(tokens).tolist() == [5, 131, 131]


async def test_greedy_takes_the_likeliest_and_is_certain_of_it() -> None:
    async with _sampler() as sampler:
        completion = await sampler.sample(_request(temperature=0.0, new=5))
        again = await sampler.sample(_request(99, temperature=0.0, new=5))
    assert completion == again
    assert set(completion.logprobs) == {0.0}


async def test_a_turn_ends_with_the_token_that_completes_a_stop_text() -> None:
    async with _sampler() as sampler:
        free = await sampler.sample(_request(8, new=60))
        text = TOKENIZER.decode_bytes(free.tokens)
        # A stop text of one byte that occurs, and a longer one that never does.
        wanted = next(bytes([byte]) for byte in text if byte < 128).decode()
        stopped = await sampler.sample(
            SampleRequest(
                rollout_id="s",
                tokens=PROMPT,
                max_new_tokens=60,
                seed=8,
                stop=("no such text occurs", wanted),
            )
        )
    assert stopped.finish == "stop"
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert wanted in TOKENIZER.decode(stopped.tokens)
    assert wanted not in TOKENIZER.decode(stopped.tokens[:-1])


async def test_an_end_of_turn_ends_the_turn_and_is_kept() -> None:
    sure = {**OLD, "norm": OLD["norm"] * 0, "embed": OLD["embed"]}
    async with _sampler(params=sure) as sampler:  # uniform: an end is drawn before long
        found = await _all(sampler, [_request(seed, new=300) for seed in range(12)])
    ended = [c for c in found if c.finish == "eos"]
    assert ended and all(c.tokens[-1] in TOKENIZER.end_ids for c in ended)
    assert all(not TOKENIZER.end_ids & set(c.tokens[:-1]) for c in found)
    assert np.allclose([c.logprobs[0] for c in found], -np.log(260), atol=1e-4)


@BOTH
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_cancelling_frees_the_slot_and_the_place_in_line(dtype: Dtype) -> None:
    async with _sampler(slots=2, dtype=dtype) as sampler:
        async with anyio.create_task_group() as group:
            for seed in range(5):
                group.start_soon(sampler.sample, _request(seed, new=450, temperature=0.1))
            await _until(sampler, lambda counts: counts.active == 2)
            group.cancel_scope.cancel()
        completion = await sampler.sample(_request(9))
        counts = sampler.statistics()
    assert (counts.cancelled, counts.active, counts.queued) == (5, 0, 0)
    assert _off(OLD, _request(9), completion) < NEAR[dtype]


async def test_slots_refill_and_the_line_is_served_in_full() -> None:
    requests = [_request(seed, new=3 + seed % 5) for seed in range(30)]
    async with _sampler(slots=3) as sampler:
        completions = await _all(sampler, requests)
        counts = sampler.statistics()
    assert counts.completions == 30 and counts.active == counts.queued == 0
    assert counts.sampled_tokens == sum(len(c.tokens) for c in completions)


@BOTH
async def test_contexts_of_very_different_lengths_share_the_batch(dtype: Dtype) -> None:
    random = np.random.default_rng(0)
    requests = [
        _request(seed, tokens=random.integers(3, 259, size).tolist(), new=12)
        for seed, size in enumerate((1, 2, 31, 33, 129, 290, 300, 480, 7))
    ]
    async with _sampler(dtype=dtype, slots=9) as sampler:
        completions = await _all(sampler, requests)
    for request, completion in zip(requests, completions, strict=True):
        assert _off(OLD, request, completion) < NEAR[dtype]


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (_request(tokens=()), ValueError, "the context is empty"),
        (_request(tokens=(260,)), ValueError, r"token ids must be in \[0, 260\)"),
        (_request(new=0), ValueError, "max_new_tokens is 0"),
        (_request(temperature=-1), ValueError, "temperature is -1"),
        (_request(new=500), ContextOverflow, "don't fit the window of 512: .*sampler.context"),
    ],
)
async def test_requests_that_make_no_sense_are_refused(
    request_: SampleRequest, error: type[Exception], said: str
) -> None:
    async with _sampler() as sampler:
        with pytest.raises(error, match=said):
            await sampler.sample(request_)
        assert (await sampler.sample(_request())).tokens


async def test_weights_of_another_shape_are_refused_and_the_sampler_lives_on() -> None:
    async with _sampler() as sampler:
        for broken in ({**NEW, "embed": NEW["embed"][:, :16]}, {"embed": NEW["embed"]}):
            with pytest.raises(ValueError, match="don't have the names and shapes"):
                await sampler.publish(broken, 1)
        assert (await sampler.sample(_request())).policy_version == 0


async def test_an_engine_failure_is_raised_at_every_waiter_and_named() -> None:
    broken = {**NEW, "norm": NEW["norm"] * np.nan}
    caught: list[SamplerError] = []
    async with _sampler() as sampler:
        await sampler.publish(broken, 1)

        async def one(seed: int) -> None:
            with pytest.raises(SamplerError, match="weights of version 1 .* not finite") as error:
                await sampler.sample(_request(seed))
            caught.append(error.value)

        async with anyio.create_task_group() as group:
            for seed in range(6):
                group.start_soon(one, seed)
        with pytest.raises(SamplerError, match="the sampler failed: "):
            await sampler.sample(_request())
        with pytest.raises(SamplerError, match="the sampler failed: "):
            await sampler.publish(NEW, 2)
    assert len(caught) == 6


async def test_outside_its_context_a_sampler_says_so() -> None:
    sampler = JaxSampler(SamplerConfig(compilation_cache=""), TINY, OLD, TOKENIZER, version=3)
    assert sampler.version == 3
    with pytest.raises(SamplerError, match="not open"):
        await sampler.sample(_request())
    async with sampler:
        pass
    with pytest.raises(SamplerError, match="closed"):
        await sampler.sample(_request())
