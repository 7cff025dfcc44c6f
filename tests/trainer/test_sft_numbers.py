"""The rate's decay and the held-out measurement equal slow references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
import pytest
from learner_inputs import tiny_learner
from tiny_model import TINY, full_forward

from patchgym.trainer.formats import SftSequence
from patchgym.trainer.sft import Example
from patchgym.trainer.sft.decay import part_of_step, rate_share
from patchgym.trainer.sft.measure import measure


def test_the_rate_warms_up_by_itself_then_falls_along_half_a_cosine() -> None:
    shares = [rate_share(step, steps=10, warmup=2, final=0.1) for step in range(10)]
    assert shares[:3] == [1.0, 1.0, 1.0]
    assert shares[4] == pytest.approx(0.1 + 0.9 * (0.5 + 0.5 * np.sqrt(0.5)))
    assert shares[6] == pytest.approx(0.55)
    assert shares[8] == pytest.approx(0.1 + 0.9 * (0.5 - 0.5 * np.sqrt(0.5)))
    assert 0.1 < shares[9] < shares[8]
    assert rate_share(9, steps=10, warmup=2, final=1.0) == 1.0
    assert rate_share(50, steps=10, warmup=2, final=0.0) == 0.0


def test_part_of_a_step_is_adamw_at_that_part_of_the_rate() -> None:
    rng = np.random.default_rng(0)
    start = {"a": jnp.asarray(rng.normal(size=(5, 3)), jnp.float32), "b": jnp.ones(4)}
    gradients = [jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), start)
                 for _ in range(6)]  # fmt: skip
    shares = [1.0, 1.0, 0.9, 0.5, 0.3, 0.0]

    def run(rate: Any, shares: Sequence[float]) -> Any:
        optimizer = optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.1)
        params, state = start, optimizer.init(start)
        for gradient, share in zip(gradients, shares, strict=True):
            updates, state = optimizer.update(gradient, state, params)
            params = part_of_step(params, optax.apply_updates(params, updates), share)
        return params

    ours = run(0.01, shares)
    theirs = run(lambda count: 0.01 * jnp.asarray(shares)[count], [1.0] * 6)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], atol=1e-6)  # a few roundings in float32
    assert part_of_step(start, ours, 1.0) is ours


def test_the_heldout_loss_is_that_of_one_sequence_at_a_time() -> None:
    rng = np.random.default_rng(3)
    learner = tiny_learner(loss="nll", aggregation="token_mean", length_normalizer=128)
    examples, logprobs, hits = [], [], []
    for number in range(20):
        size = int(rng.integers(4, 30))
        ids = rng.integers(1, TINY.vocabulary, size)
        mask = rng.random(size) < 0.5
        mask[0], mask[1] = False, True
        sequence = SftSequence(tokens=tuple(map(int, ids)), loss_mask=tuple(map(bool, mask)))
        task = str(number % 3)
        examples.append(Example(sequences=(sequence,), source="x", task=task, exact=True))
        scores = full_forward(TINY, learner.params, sequence.tokens)
        for place in np.flatnonzero(mask):
            logprobs.append(scores[place - 1, ids[place]])
            hits.append(int(np.argmax(scores[place - 1])) == ids[place])
    result = measure(learner, examples)
    assert result.tokens == len(logprobs)
    assert result.loss == pytest.approx(-np.mean(np.asarray(logprobs, np.float64)), abs=2e-6)
    assert result.accuracy == np.mean(hits)
