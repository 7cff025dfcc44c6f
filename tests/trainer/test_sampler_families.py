"""The sampler computes what the learner computes, for every family."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from patchgym.trainer.sampler import kernels, kv_cache

from .model.family_cases import CASES, causal_logprobs, random_params

KNOWN, NEW = 24, 16


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-5), ("bfloat16", 0.1)])
@pytest.mark.parametrize("name", CASES)
def test_sampled_logprobs_are_those_of_the_learners_decoder(
    name: str, dtype: str, near: float
) -> None:
    config = CASES[name].config
    if config.layers > 2:
        config = replace(config, layers=3, windowed=(True, False, True))
    params = random_params(config, 1)
    weights = kernels.lay_out(config, params, dtype)
    context = np.random.default_rng(0).integers(0, config.vocabulary, KNOWN)
    cache = kv_cache.empty_cache(config, 1, 64)
    read, row, start = jnp.asarray(context[:-1]), jnp.int32(0), jnp.int32(0)
    cache = kernels.prefill(config, weights, cache, row, read, start)
    draws = jnp.asarray(np.random.default_rng(1).random((NEW, 1)), jnp.float32)
    last, place = jnp.asarray(context[-1:], jnp.int32), jnp.asarray([KNOWN - 1], jnp.int32)
    _, tokens, logprobs = kernels.decode(config, weights, [cache], last, place, draws, jnp.ones(1))
    sampled = np.asarray(tokens)[:, 0]
    scores = causal_logprobs(config, params, [[*context, *sampled]])[0, KNOWN - 1 : -1]
    expected = scores[np.arange(NEW), sampled]
    np.testing.assert_allclose(np.asarray(logprobs)[:, 0], expected, rtol=0, atol=near)
