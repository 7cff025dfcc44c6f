"""The sampler computes what the learner computes, for every family."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from patchgym.trainer.sampler import kernels, kv_cache
from patchgym.trainer.sampler.native_attention import serves

from .model.family_cases import CASES, causal_logprobs, random_params

KNOWN, NEW = 24, 16


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-5), ("bfloat16", 0.1)])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_sampled_logprobs_are_those_of_the_learners_decoder(
    name: str, native: bool, dtype: str, near: float
) -> None:
    config = CASES[name].config
    if config.layers > 2:
        config = replace(config, layers=3, windowed=(True, False, True))
    if native:
        config = replace(config, head_dim=16)
        assert serves(config)
    params = random_params(config, 1)
    weights = kernels.lay_out(config, params, dtype)
    context = np.random.default_rng(0).integers(0, config.vocabulary, KNOWN)
    held = kv_cache.cache_dtype(config, dtype) if native else "float32"
    cache = kv_cache.empty_cache(config, 1, 64, held)
    read, row, start = jnp.asarray(context[:-1]), jnp.int32(0), jnp.int32(0)
    cache = kernels.prefill(config, weights, cache, row, read, start)
    draws = jnp.asarray(np.random.default_rng(1).random((NEW, 1)), jnp.float32)
    last, place = jnp.asarray(context[-1:], jnp.int32), jnp.asarray([KNOWN - 1], jnp.int32)
    given = (last, place, draws, jnp.ones(1))
    _, tokens, logprobs = kernels.decode(config, weights, [cache], *given, native=native)
    sampled = np.asarray(tokens)[:, 0]
    scores = causal_logprobs(config, params, [[*context, *sampled]])[0, KNOWN - 1 : -1]
    expected = scores[np.arange(NEW), sampled]
    np.testing.assert_allclose(np.asarray(logprobs)[:, 0], expected, rtol=0, atol=near)
