"""The learner learns, is deterministic, compiles little, and never applies what is not finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_inputs import forked_group, observed, tiny_learner
from tiny_model import TINY

from patchgym.trainer.batching import TrainSequence, flat_rows
from patchgym.trainer.learner import Learner, StepInterrupted
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.losses import token_logprobs
from patchgym.trainer.model.decoder import Params, head_weight, hidden_states

PROMPT = observed(np.random.default_rng(5), 6)[0]


def _next_logprobs(params: Params) -> np.ndarray:
    """Log-probabilities [V] of the token after PROMPT."""
    row = jnp.asarray(PROMPT)[None]
    places = jnp.arange(len(PROMPT), dtype=jnp.int32)[None]
    states = hidden_states(TINY, params, row, places, jnp.full_like(row, len(PROMPT)))
    return np.asarray(jax.nn.log_softmax(states[0, -1] @ head_weight(TINY, params)))


def _pulls(learner: Learner, good: int, rng: np.random.Generator) -> list[TrainSequence]:
    """Sixteen draws of the token after PROMPT; those of `good` are rewarded."""
    logprobs = _next_logprobs(learner.params)
    draws = [good, *rng.choice(TINY.vocabulary, 15, p=np.exp(logprobs) / np.exp(logprobs).sum())]
    return [
        TrainSequence(
            tokens=np.append(PROMPT, draw).astype(np.int32),
            loss_mask=np.arange(len(PROMPT) + 1) == len(PROMPT),
            sampler_logprobs=np.append(np.zeros(len(PROMPT)), logprobs[draw]).astype(np.float32),
            advantage=1.0 if draw == good else -1 / 15,
        )
        for draw in draws
    ]


def test_a_rewarded_token_becomes_likely() -> None:
    learner, rng = tiny_learner(learning_rate=3e-3, length_normalizer=1), np.random.default_rng(0)
    good = 11
    before = _next_logprobs(learner.params)[good]
    steps = 0
    for _ in range(12):
        report = learner.train([_pulls(learner, good, rng)])
        steps = report.step
        assert report.applied
        assert abs(report.mean_ratio - 1) < 1e-4
        assert 0 <= report.mismatch_kl < 1e-6
        assert report.clipped_fraction == 0
    assert steps == 12
    assert np.exp(_next_logprobs(learner.params)[good]) > max(0.5, 5 * np.exp(before))


def test_reports_are_true() -> None:
    groups = [forked_group(np.random.default_rng(1)) for _ in range(2)]
    learner = tiny_learner(warmup_steps=4, row_tokens=(64,))
    first, second = learner.train(groups), learner.train(groups)
    assert first.learning_rate == pytest.approx(0.25e-5)
    assert second.learning_rate == pytest.approx(0.5e-5)
    assert first.sequences == 8
    assert first.flat_tokens == sum(len(s.tokens) for g in groups for s in g)
    assert first.tree_tokens <= first.padded_tokens
    assert 0 < first.entropy <= np.log(TINY.vocabulary)
    assert first.mismatch_kl > 1e-3, "these log-probabilities are not the learner's"
    assert first.compilations == 1
    assert second.compilations == 0


def test_compilations_are_bounded_by_the_row_lengths() -> None:
    learner, rng = tiny_learner(row_tokens=(32, 64)), np.random.default_rng(2)
    total = sum(learner.train([forked_group(rng)[: 1 + i % 4]]).compilations for i in range(8))
    assert total <= 2


def test_same_input_gives_the_same_bits() -> None:
    groups = [forked_group(np.random.default_rng(4)) for _ in range(3)]
    learners = tiny_learner(), tiny_learner()
    for learner in learners:
        learner.train(groups)
        learner.train(groups)
    first, second = (jax.tree.leaves(learner.state) for learner in learners)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_old_parameters_stay_readable() -> None:
    learner = tiny_learner(learning_rate=1e-2)
    old = learner.params
    copy = np.array(old["embed"])
    learner.train([forked_group(np.random.default_rng(6))])
    np.testing.assert_array_equal(old["embed"], copy)
    assert not np.array_equal(learner.params["embed"], copy)


def test_what_is_not_finite_is_skipped_and_said() -> None:
    learner = tiny_learner()
    broken = jax.tree.map(np.array, learner.params)
    broken["norm"][0] = np.nan
    learner = Learner(LearnerConfig(row_tokens=(64,)), TINY, broken)
    before = [np.array(leaf) for leaf in jax.tree.leaves(learner.state)]
    report = learner.train([forked_group(np.random.default_rng(7))])
    assert not report.applied
    assert report.reason == "the loss is nan"
    assert (report.not_finite, report.skipped) == (True, 1)
    assert report.step == learner.step == 0
    after = jax.tree.leaves(learner.state)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_finite_loss_with_an_infinite_gradient_is_skipped() -> None:
    huge = [dataclasses.replace(s, advantage=3e38) for s in forked_group(np.random.default_rng(8))]
    learner = tiny_learner()
    report = learner.train([huge[-1:]])
    assert not report.applied
    assert report.reason.startswith(("the gradient's norm is", "the loss is"))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner.params))


def test_nothing_to_learn_changes_nothing() -> None:
    learner = tiny_learner()
    report = learner.train([[]])
    assert (report.applied, report.step, report.rows) == (False, 0, 0)
    assert (report.not_finite, report.skipped) == (False, 0)
    assert "no sequence" in report.reason


def test_a_step_can_be_given_up_between_rows() -> None:
    learner = tiny_learner()
    answers = iter([False, True])
    groups = [forked_group(np.random.default_rng(9)) for _ in range(4)]
    with pytest.raises(StepInterrupted, match="step 1"):
        learner.train(groups, should_stop=lambda: next(answers))
    assert learner.step == 0


def test_the_gradient_is_clipped_to_the_norm() -> None:
    """AdamW's first step does not see the scale, its first moment does."""
    groups = [forked_group(np.random.default_rng(1))]
    learner = tiny_learner(max_grad_norm=1e-3)
    assert learner.train(groups).grad_norm > 1e-3
    moments = jax.tree.leaves(learner.state.optimizer[0].mu)
    norm = np.sqrt(sum(float(jnp.sum(m**2)) for m in moments)) / (1 - 0.9)
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_logprobs_in_the_learner_are_those_of_the_decoder() -> None:
    params = tiny_learner().params
    row = jnp.asarray(PROMPT)[None]
    places = jnp.arange(len(PROMPT), dtype=jnp.int32)[None]
    states = hidden_states(TINY, params, row, places, jnp.full_like(row, len(PROMPT)))
    target = jnp.asarray([11], jnp.int32)
    one = jnp.asarray(1, jnp.int32)
    logprobs, _ = token_logprobs(states[0, -1:], head_weight(TINY, params).T, target, one, 1)
    assert float(logprobs[0]) == pytest.approx(_next_logprobs(params)[11], abs=1e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("row_tokens", (64, 32)), ("row_tokens", ()), ("learning_rate", 0), ("ratio_cap", 0.5)],
)
def test_settings_that_cannot_work_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"learner\.{field} can't be"):
        LearnerConfig(**{field: value})  # type: ignore[arg-type]


def _leaves(learner: Learner) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(learner.state)]


def _on_policy(learner: Learner, groups: list[list[TrainSequence]]) -> list[list[TrainSequence]]:
    """`groups` as if this learner had sampled them."""
    changed: list[list[TrainSequence]] = []
    for group in groups:
        flat = [flat_rows([[s]], length=64, keep_all=True) for s in group]
        found = [learner.logprobs(batch)[0] for batch in flat]
        changed.append([])
        for sequence, logprobs in zip(group, found, strict=True):
            own = np.zeros(len(sequence.tokens), np.float32)
            own[sequence.loss_mask] = logprobs
            changed[-1].append(dataclasses.replace(sequence, sampler_logprobs=own))
    return changed


def test_logprobs_are_those_that_the_mismatch_is_measured_with() -> None:
    learner = tiny_learner()
    groups = _on_policy(learner, [forked_group(np.random.default_rng(10))])
    report = learner.train(groups)
    assert report.mismatch_max < 1e-5
    assert report.mean_ratio == pytest.approx(1.0, abs=1e-5)


def test_supervised_loss_is_the_mean_negative_log_probability() -> None:
    group = [dataclasses.replace(s, advantage=1.0) for s in forked_group(np.random.default_rng(3))]
    learner = tiny_learner(
        loss="nll",
        aggregation="token_mean",
        length_normalizer=128,
        learning_rate=1e-2,
        row_tokens=(64,),
    )
    batch = learner.pack([group])
    found = zip(learner.logprobs(batch), batch.rows, strict=True)
    total = sum(float((values * row.reads.sharing[: row.read]).sum()) for values, row in found)
    tokens = sum(int(s.loss_mask.sum()) for s in group)
    reports = [learner.train([group]) for _ in range(8)]
    assert reports[0].loss == pytest.approx(-total / tokens, rel=1e-5)
    assert reports[-1].loss < 0.7 * reports[0].loss
    assert (reports[0].mean_ratio, reports[0].mismatch_max) == (1.0, 0.0)


def test_the_divergence_from_the_initial_weights_is_held_down_by_its_coefficient() -> None:
    groups = [forked_group(np.random.default_rng(11))]
    learners = [
        tiny_learner(loss="cispo", kl_coefficient=each, learning_rate=3e-3, row_tokens=(64,))
        for each in (1e-6, 3.0)
    ]
    reports = [[learner.train(groups) for _ in range(6)] for learner in learners]
    for of_one in reports:
        assert of_one[0].reference_kl == pytest.approx(0.0, abs=1e-6)
        assert of_one[-1].reference_kl > 1e-4
    assert reports[1][-1].reference_kl < 0.7 * reports[0][-1].reference_kl


def test_the_initial_weights_stay_the_reference_after_a_restore() -> None:
    groups = [forked_group(np.random.default_rng(11))]
    settings: dict[str, object] = {
        "kl_coefficient": 0.1,
        "learning_rate": 1e-2,
        "row_tokens": (64,),
    }
    learner, other = (tiny_learner(**settings) for _ in range(2))  # type: ignore[arg-type]
    learner.train(groups)
    other.restore(jax.tree.map(jnp.copy, learner.state))
    assert other.train(groups).reference_kl == learner.train(groups).reference_kl > 0


def test_the_entropy_bonus_raises_entropy() -> None:
    groups = [[dataclasses.replace(s, advantage=0.0) for s in forked_group(_rng())]]
    learner = tiny_learner(entropy_coefficient=1.0, learning_rate=1e-2, row_tokens=(64,))
    reports = [learner.train(groups) for _ in range(6)]
    assert all(report.applied for report in reports), "a bonus needs no advantage"
    assert reports[-1].entropy > reports[0].entropy + 1e-3


def _rng() -> np.random.Generator:
    return np.random.default_rng(12)


def test_several_updates_are_one_step_and_clip_against_its_start() -> None:
    """Where the sampler is the learner at the step's start, both proximal policies are one."""
    rng = np.random.default_rng(13)
    settings: dict[str, object] = {
        "loss": "ppo",
        "updates": 2,
        "learning_rate": 1e-2,
        "row_tokens": (64,),
    }
    plain = tiny_learner(**settings)  # type: ignore[arg-type]
    decoupled = tiny_learner(proximal="step_start", correction="token", **settings)  # type: ignore[arg-type]
    groups = _on_policy(plain, [forked_group(rng), forked_group(rng)])
    groups = [*groups, *groups]  # so that the second update has a ratio
    reports = [learner.train(groups) for learner in (plain, decoupled)]
    assert [report.step for report in reports] == [1, 1]
    assert plain.state.optimizer[0].count == 2
    assert reports[0].mean_ratio != pytest.approx(1.0, abs=1e-3)
    for a, b in zip(_leaves(plain), _leaves(decoupled), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_step_of_several_updates_is_made_whole_or_not_at_all() -> None:
    groups = [forked_group(np.random.default_rng(9)) for _ in range(2)]
    learner = tiny_learner(updates=2, row_tokens=(64,))
    before = _leaves(learner)
    answers = iter([False, True])
    with pytest.raises(StepInterrupted, match="step 1"):
        learner.train(groups, should_stop=lambda: next(answers))
    broken = [groups[0], [dataclasses.replace(groups[1][-1], advantage=3e38)]]
    report = learner.train(broken)
    assert (report.applied, report.not_finite, report.step) == (False, True, 0)
    for a, b in zip(before, _leaves(learner), strict=True):
        np.testing.assert_array_equal(a, b)
    assert learner.train(groups).step == 1


def test_a_loss_over_sequences_reads_each_by_itself() -> None:
    groups = [forked_group(np.random.default_rng(1))]
    shared = tiny_learner(row_tokens=(64,)).pack(groups)
    assert max(row.reads.sharing.max() for row in shared.rows) == 3
    gspo = tiny_learner(loss="gspo", clip_low=3e-4, clip_high=4e-4, row_tokens=(64,))
    alone = gspo.pack(groups)
    assert max(row.reads.sharing.max() for row in alone.rows) == 1
    assert shared.tree_tokens == alone.tree_tokens < alone.flat_tokens, "tokens are shared still"
    report = gspo.train(groups)
    assert report.applied
    assert 0 < report.clipped_fraction < 1


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "gspo_token", "clip_low": 0.02, "clip_high": 0.02},
        {"loss": "sapo", "entropy_coefficient": 0.1, "kl_coefficient": 0.1},
    ],
)
def test_rows_of_the_decoder_equal_flat_rows_for_other_losses(settings: dict[str, Any]) -> None:
    learner = tiny_learner(
        aggregation="sequence_mean", length_normalizer=128, row_tokens=(64,), **settings
    )
    rng = np.random.default_rng(14)
    groups = [forked_group(rng) for _ in range(2)]
    reference = flat_rows(groups, length=64, aggregation="sequence_mean", keep_all=True)
    (loss, gradient), (want, slope) = (
        learner.gradient(batch) for batch in (learner.pack(groups), reference)
    )
    assert loss == pytest.approx(want, abs=1e-5)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(slope), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
