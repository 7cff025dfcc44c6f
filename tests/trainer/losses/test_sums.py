"""Sums of a row against hand and against a slow reference; rows never change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_inputs import forked_group, join, observed, sampled
from tiny_model import TINY

from patchgym.trainer.batching import Batch, TrainSequence, flat_rows, pack
from patchgym.trainer.loss_config import LossConfig
from patchgym.trainer.losses import RowTokens, TokenSums, row_sums

Floats = npt.NDArray[np.float64]
Groups = Sequence[Sequence[TrainSequence]]

RATIOS = np.asarray([1.5, 0.9, 1.0])
ROW = RowTokens(
    # Two real tokens (the first shared by 3 sequences), one of padding with absurd values.
    logprobs=jnp.asarray([*np.log(RATIOS[:2]) - 1.0, 80.0], jnp.float32),
    entropies=jnp.asarray([2.0, 1.0, 7.0]),
    sampler_logprobs=jnp.asarray([-1.0, -1.0, -80.0]),
    positive=jnp.asarray([1.0, 0.0, 0.0]),
    negative=jnp.asarray([0.0, -2.0, 0.0]),
    sharing=jnp.asarray([3.0, 1.0, 0.0]),
    weights=jnp.asarray([3.0, 1.0, 0.0]),
    owners=jnp.asarray([1, 2, 0]),
)


def test_sums_of_the_default_by_hand() -> None:
    sums = row_sums(LossConfig(), ROW)
    np.testing.assert_allclose(sums.objective, 1.28 - 1.8, rtol=1e-5)
    np.testing.assert_allclose(sums.entropy, 7.0)
    np.testing.assert_allclose(sums.ratio, 3 * 1.5 + 0.9, rtol=1e-5)
    np.testing.assert_allclose(sums.clipped, 3.0)
    expected = 3 * (0.5 - np.log(1.5)) + (-0.1 - np.log(0.9))
    np.testing.assert_allclose(sums.mismatch_kl, expected, rtol=1e-4)
    np.testing.assert_allclose(sums.tokens, 4.0)
    assert (float(sums.truncated), float(sums.rejected), float(sums.reference_kl)) == (0, 0, 0)


def test_penalties_and_bonus_by_hand() -> None:
    reference = ROW._replace(reference_logprobs=ROW.logprobs - jnp.asarray([0.5, -1.0, 60.0]))
    config = LossConfig(kl_coefficient=0.1, kl_estimator="k2", entropy_coefficient=0.01)
    sums = row_sums(config, reference)
    divergence = 3 * 0.125 + 0.5
    np.testing.assert_allclose(
        sums.objective, 1.28 - 1.8 - 0.1 * divergence + 0.01 * 7.0, rtol=1e-5
    )
    np.testing.assert_allclose(sums.reference_kl, divergence, rtol=1e-5)


def test_corrections_by_hand() -> None:
    # Two tokens of one sequence: ratios 3 and 0.5, product 1.5.
    ratios = np.asarray([3.0, 0.5, 1.0])
    row = ROW._replace(
        logprobs=jnp.asarray(np.log(ratios) - 1, jnp.float32),
        sampler_logprobs=jnp.full(3, -1.0),
        positive=jnp.asarray([1.0, 1.0, 0.0]),
        negative=jnp.zeros(3),
        sharing=jnp.asarray([1.0, 1.0, 0.0]),
        owners=jnp.asarray([1, 1, 0]),
    )
    first, second = np.log(3.0) - 1, np.log(0.5) - 1
    token = row_sums(LossConfig(loss="reinforce", correction="token"), row)
    np.testing.assert_allclose(token.objective, 2.0 * first + 0.5 * second, rtol=1e-5)
    np.testing.assert_allclose(token.truncated, 1.0)
    sequence = row_sums(LossConfig(loss="reinforce", correction="sequence"), row)
    np.testing.assert_allclose(sequence.objective, 1.5 * (first + second), rtol=1e-5)
    # The mean log-ratio is log(1.5) / 2 = 0.203 nats.
    kept = row_sums(LossConfig(loss="reinforce", reject_high=0.21), row)
    np.testing.assert_allclose(kept.objective, first + second, rtol=1e-5)
    for low in (0.0, 0.01):
        out = row_sums(LossConfig(loss="reinforce", reject_low=low, reject_high=0.2), row)
        assert float(out.objective) == 0
        assert float(out.rejected) == 2
    assert float(row_sums(LossConfig(loss="reinforce", reject_low=0.01), row).rejected) == 0


def test_decoupled_ppo_clips_against_the_step_and_corrects_for_the_sampler() -> None:
    # Learner over step start 1.5, step start over sampler 3: clip 1.28 times a weight cut to 2.
    row = ROW._replace(
        logprobs=jnp.asarray([np.log(4.5) - 2, -1.0, 0.0], jnp.float32),
        proximal_logprobs=jnp.asarray([np.log(3.0) - 2, -1.0, 0.0], jnp.float32),
        sampler_logprobs=jnp.asarray([-2.0, -1.0, 0.0]),
    )
    settings: dict[str, Any] = {"loss": "ppo", "proximal": "step_start", "updates": 2}
    sums = row_sums(LossConfig(**settings, correction="token"), row)
    np.testing.assert_allclose(sums.objective, 2 * 1.28 - 2.0, rtol=1e-5)
    np.testing.assert_allclose(sums.truncated, 3.0)
    plain = row_sums(LossConfig(**settings), row)
    np.testing.assert_allclose(plain.objective, 1.28 - 2.0, rtol=1e-5)


def test_supervised_sums_compare_with_no_sampler() -> None:
    sums = row_sums(LossConfig(loss="nll"), ROW)
    expected = 1.0 * (np.log(1.5) - 1) - 2.0 * (np.log(0.9) - 1)
    np.testing.assert_allclose(sums.objective, expected, rtol=1e-5)
    assert (float(sums.ratio), float(sums.mismatch_kl), float(sums.largest)) == (4.0, 0, 0)


@pytest.mark.parametrize("loss", ["clipped", "ppo", "cispo", "sapo", "dppo", "reinforce"])
def test_an_absurd_ratio_in_the_padding_reaches_no_gradient(loss: Any) -> None:
    def objective(logprobs: jax.Array) -> jax.Array:
        return row_sums(LossConfig(loss=loss), ROW._replace(logprobs=logprobs)).objective

    slope = jax.grad(objective)(ROW.logprobs.at[2].set(1e5))
    assert np.isfinite(slope).all()
    assert float(slope[2]) == 0


# A model small enough to be a table: the log-probability of a token is its id's entry.
TABLE = np.random.default_rng(0).normal(-np.log(TINY.vocabulary), 0.3, TINY.vocabulary)
START = TABLE + np.random.default_rng(1).normal(0, 0.2, TINY.vocabulary)
REFERENCE = TABLE + np.random.default_rng(2).normal(0, 0.2, TINY.vocabulary)

GSPO: dict[str, Any] = {"loss": "gspo", "clip_low": 0.02, "clip_high": 0.02}
DECOUPLED: dict[str, Any] = {"proximal": "step_start", "updates": 2, "correction": "token"}
CONFIGS: list[dict[str, Any]] = [
    {},
    {"aggregation": "token_mean"},
    {"loss": "ppo", "aggregation": "sequence_mean", "dual_clip": 1.5},
    {"loss": "ppo", **DECOUPLED, "ratio_cap": 1.2},
    {"loss": "reinforce", "correction": "token", "ratio_cap": 1.3},
    {"loss": "reinforce", "correction": "sequence", "ratio_cap": 1.1},
    {"loss": "cispo", "ratio_cap": 1.3, "aggregation": "prompt_mean"},
    {**GSPO, "aggregation": "sequence_mean"},
    {**GSPO, "loss": "gspo_token", **DECOUPLED},
    {"loss": "sapo", "aggregation": "prompt_mean"},
    {"loss": "dppo", "divergence_limit": 0.001},
    {"loss": "nll", "aggregation": "token_mean"},
    {"reject_low": 0.05, "reject_high": 0.15, "aggregation": "token_mean"},
    {"kl_coefficient": 0.1, "aggregation": "sequence_mean"},
    {"kl_coefficient": 0.1, "kl_estimator": "k1", "loss": "ppo"},
]


def _rows(config: LossConfig, batch: Batch) -> tuple[float, Floats, list[TokenSums]]:
    """Loss, its gradient in the table's entries, and the sums of each row."""

    def objective(table: jax.Array) -> tuple[jax.Array, list[TokenSums]]:
        found = [
            row_sums(
                config,
                RowTokens(
                    logprobs=table[row.reads.targets],
                    entropies=jnp.zeros(row.length),
                    sampler_logprobs=jnp.asarray(row.reads.sampler_logprobs),
                    positive=jnp.asarray(row.reads.positive),
                    negative=jnp.asarray(row.reads.negative),
                    sharing=jnp.asarray(row.reads.sharing),
                    weights=jnp.asarray(row.reads.weights),
                    owners=jnp.asarray(row.reads.owners),
                    proximal_logprobs=jnp.asarray(START, jnp.float32)[row.reads.targets],
                    reference_logprobs=jnp.asarray(REFERENCE, jnp.float32)[row.reads.targets],
                ),
            )
            for row in batch.rows
        ]
        return sum((s.objective for s in found), jnp.zeros(())), found

    length = config.length_normalizer if config.aggregation == "constant" else 1
    divisor = batch.divisor * length
    table = jnp.asarray(TABLE, jnp.float32)
    (value, sums), slope = jax.value_and_grad(objective, has_aux=True)(table)
    return -float(value) / divisor, -np.asarray(slope, np.float64) / divisor, sums


def _factor(c: LossConfig, p: Floats, base: Floats, positive: bool) -> tuple[Floats, Floats]:
    """By the papers' formulas: what the advantage is multiplied with, and d that / d log p, [n]."""
    r = np.exp(p - base)
    if c.loss in ("gspo", "gspo_token"):
        r = np.full(len(p), np.exp(np.mean(p - base)))
    high, low = 1 + c.clip_high, 1 - c.clip_low
    slope: Floats
    match c.loss:
        case "ppo" | "gspo" | "gspo_token":
            value = np.minimum(r, high) if positive else np.maximum(r, low)
            slope = np.where(r > high if positive else r < low, 0.0, r)
            if c.dual_clip and not positive:
                slope = np.where(value > c.dual_clip, 0.0, slope)
                value = np.minimum(value, c.dual_clip)
            return value, slope
        case "clipped":
            weight = np.minimum(r, c.ratio_cap)
            cut = r > high if positive else r < low
            return np.where(cut, high if positive else low, weight), np.where(cut, 0.0, weight)
        case "cispo":
            weight = np.minimum(r, c.ratio_cap)
            return weight * p, weight
        case "sapo":
            t = c.sapo_positive if positive else c.sapo_negative
            gate = 1 / (1 + np.exp(-t * (r - 1)))
            return 4 / t * gate, 4 * gate * (1 - gate) * r
        case "dppo":
            far = np.abs(np.exp(p) - np.exp(base)) > c.divergence_limit
            cut = far & (r > 1 if positive else r < 1)
            weight = np.minimum(r, c.ratio_cap)
            return weight, np.where(cut, 0.0, weight)
    return p, np.ones(len(p))


def _kl(c: LossConfig, d: Floats) -> tuple[Floats, Floats]:
    """Value and slope of the KL estimate at the log-ratio `d`."""
    if c.kl_estimator == "k1":
        return d, d
    return np.exp(-d) - 1 + d, 1 - np.exp(-d)


def _weight(c: LossConfig, p: Floats, mu: Floats, start: Floats) -> Floats:
    """The correction's weight of each token of a sequence."""
    lag = (start if c.proximal == "step_start" else p) - mu
    weight = np.ones(len(p))
    if c.correction == "token":
        weight = np.minimum(np.exp(lag), c.ratio_cap)
    if c.correction == "sequence":
        weight = np.full(len(p), min(float(np.prod(np.exp(lag))), c.ratio_cap))
    if c.reject_high and not -c.reject_low <= lag.mean() <= c.reject_high:
        weight = np.zeros(len(p))
    return weight


def _scale(c: LossConfig, groups: Groups) -> Callable[[int, int], float]:
    """The weight in the average of a token of sequence j of group i; one segment a trajectory."""
    sizes = [[int(s.loss_mask.sum()) for s in group] for group in groups]
    count = sum(map(len, groups))
    return {
        "constant": lambda i, j: 1 / (count * c.length_normalizer),
        "token_mean": lambda i, j: 1 / sum(map(sum, sizes)),
        "sequence_mean": lambda i, j: 1 / (count * sizes[i][j]),
        "prompt_mean": lambda i, j: 1 / (len(groups) * sum(sizes[i])),
    }[c.aggregation]


def _reference(c: LossConfig, groups: Groups) -> tuple[float, Floats]:
    """One sequence at a time, in double precision, gradients written out."""
    loss, gradient = 0.0, np.zeros(len(TABLE))
    scale = _scale(c, groups)
    for i, group in enumerate(groups):
        for j, sequence in enumerate(group):
            ids = sequence.tokens[sequence.loss_mask]
            mu = sequence.sampler_logprobs[sequence.loss_mask].astype(np.float64)
            p = TABLE[ids]
            base = START[ids] if c.proximal == "step_start" else mu
            value, slope = _factor(c, p, base, sequence.advantage > 0)
            weight = sequence.advantage * _weight(c, p, mu, START[ids])
            divergence, push = _kl(c, p - REFERENCE[ids])
            value = weight * value - c.kl_coefficient * divergence
            slope = weight * slope - c.kl_coefficient * push
            loss -= scale(i, j) * value.sum()
            np.add.at(gradient, ids, -scale(i, j) * slope)
    return loss, gradient


def _groups(seed: int) -> Groups:
    """Uneven groups that share turns, with ratios that clips and caps act on."""
    rng = np.random.default_rng(seed)
    prompt, turn = observed(rng, 5), sampled(rng, 6)
    few = [join([prompt, turn, sampled(rng, int(n))], float(rng.normal())) for n in (3, 8)]
    silent = join([prompt, turn], 0.0)
    return [forked_group(rng), [*few, silent], [join([observed(rng, 3), sampled(rng, 9)], 1.0)]]


def _pack(config: LossConfig, groups: Groups, row_tokens: tuple[int, ...]) -> Batch:
    return pack(
        groups,
        row_tokens=row_tokens,
        aggregation=config.aggregation,
        share_sampled=not config.by_sequence,
        keep_all=config.reads_all,
    )


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_any_rows_equal_the_slow_reference(options: dict[str, Any]) -> None:
    config = LossConfig(**options)
    groups = _groups(3)
    loss, gradient = _reference(config, groups)
    flat = flat_rows(groups, length=32, aggregation=config.aggregation, keep_all=config.reads_all)
    ways = [_pack(config, groups, rows) for rows in ((32,), (24, 64), (96,))]
    assert len({len(batch.rows) for batch in ways}) > 1
    rejected: list[float] = []
    for batch in (flat, *ways):
        got, slope, sums = _rows(config, batch)
        rejected.append(sum(float(row.rejected) for row in sums))
        assert got == pytest.approx(loss, rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(slope, gradient, atol=2e-6)
    if "reject_low" in options:
        assert 0 < rejected[0] < flat.loss_tokens, "the bounds act in this test"
    assert len(set(rejected)) == 1


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1), st.sampled_from(CONFIGS))
def test_a_batch_split_over_rows_in_any_way_has_one_loss(
    seed: int, options: dict[str, Any]
) -> None:
    config = LossConfig(**options)
    groups = _groups(seed)
    want, slope, _ = _rows(config, _pack(config, groups, (32, 96)))
    got, other, _ = _rows(config, _pack(config, groups[::-1], (28,)))
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(other, slope, atol=2e-6)


def test_sharing_sampled_tokens_would_be_wrong_for_a_sequence_ratio() -> None:
    """Which is why `by_sequence` forbids it: the check that the test above can fail."""
    config = LossConfig(**GSPO)
    groups = _groups(3)
    _, right = _reference(config, groups)
    shared = pack(groups, row_tokens=(96,))
    assert any((row.reads.sharing > 1).any() for row in shared.rows)
    _, wrong, _ = _rows(config, shared)
    assert np.abs(wrong - right).max() > 1e-4
