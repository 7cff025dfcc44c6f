"""Advantages against arrays computed by hand, and what must hold for any group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.trainer.advantages import (
    Estimator,
    component_advantages,
    decoupled,
    group_advantages,
    leave_one_out,
    mean_centered,
    overlong_penalty,
    scaled_over_batch,
    standardized,
)

REWARDS = [1.0, 0.0, 0.5, 0.5]
EVERYONE = [True, True, True, True]
# The third member does not count: its own baseline is the mean of the other three.
MASKED = [True, True, False, True]

GOLDEN = [
    # (1 - 1/3), (0 - 2/3), (.5 - 1.5/3), the same
    (leave_one_out, EVERYONE, [2 / 3, -2 / 3, 0.0, 0.0]),
    # (1 - .25), (0 - .75), (.5 - .5), (.5 - .5)
    (leave_one_out, MASKED, [0.75, -0.75, 0.0, 0.0]),
    (mean_centered, EVERYONE, [0.5, -0.5, 0.0, 0.0]),
    (mean_centered, MASKED, [0.5, -0.5, 0.0, 0.0]),
    # the variance with n - 1 is (.25 + .25) / 3, then (.25 + .25) / 2
    (standardized, EVERYONE, [0.5 / (1 / 6) ** 0.5, -0.5 / (1 / 6) ** 0.5, 0.0, 0.0]),
    (standardized, MASKED, [1.0, -1.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("function", "counts", "expected"), GOLDEN)
def test_golden(function: Callable[..., Any], counts: list[bool], expected: list[float]) -> None:
    rewards = np.asarray(REWARDS, np.float32)
    mask = np.asarray(counts)
    plain = function(rewards, mask)
    assert isinstance(plain, np.ndarray)
    np.testing.assert_allclose(plain, expected, atol=2e-5)
    traced = jax.jit(function)(jnp.asarray(rewards), jnp.asarray(mask))
    np.testing.assert_allclose(traced, expected, atol=2e-5)


def test_groups_of_other_sizes_padded_to_one_array_equal_themselves_alone() -> None:
    rewards = np.asarray([[1.0, 0.0, 0.3, 0.9], [0.2, 0.7, 99.0, -99.0]])
    counts = np.asarray([[True] * 4, [True, True, False, False]])
    together = leave_one_out(rewards, counts)
    np.testing.assert_allclose(together[0], group_advantages(rewards[0].tolist()))
    np.testing.assert_allclose(together[1, :2], group_advantages([0.2, 0.7]))


@pytest.mark.parametrize("estimator", ["rloo", "grpo", "dr_grpo"])
def test_a_member_that_does_not_count_moves_nobody(estimator: Estimator) -> None:
    counts = [True, True, True, False]
    low = group_advantages([1, 0, 0.5, 0], counts_in_baseline=counts, estimator=estimator)
    high = group_advantages([1, 0, 0.5, 50], counts_in_baseline=counts, estimator=estimator)
    np.testing.assert_array_equal(low[:3], high[:3])
    alone = group_advantages([1.0, 0.5], counts_in_baseline=[True, False], estimator=estimator)
    assert alone[0] == 0.0
    nobody = group_advantages([1.0, 0.5], counts_in_baseline=[False, False], estimator=estimator)
    assert nobody.tolist() == [0.0, 0.0]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=16), st.floats(-5, 5))
def test_leave_one_out_is_centered_and_blind_to_a_shift(rewards: list[float], by: float) -> None:
    advantages = group_advantages(rewards)
    assert abs(advantages.sum()) < 1e-9 * len(rewards) * 100
    np.testing.assert_allclose(group_advantages([r + by for r in rewards]), advantages, atol=1e-9)
    scaled = group_advantages(rewards, estimator="dr_grpo") * len(rewards) / (len(rewards) - 1)
    np.testing.assert_allclose(scaled, advantages, atol=1e-9)


def test_each_component_is_standardized_before_it_is_weighed() -> None:
    # By hand: [1, 0, 1, 0] has std 1/sqrt(3) with n - 1, [0, .2, .2, 0] a fifth of it.
    values = np.asarray([[1.0, 0.0, 1.0, 0.0], [0.0, 0.2, 0.2, 0.0]])
    unit = 0.5 * 3**0.5
    expected = [unit + 0.5 * unit, -unit - 0.5 * unit, unit - 0.5 * unit, -unit + 0.5 * unit]
    found = decoupled(values, np.asarray([1.0, -0.5]), np.asarray(EVERYONE))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    traced = jax.jit(decoupled)(
        jnp.asarray(values), jnp.asarray([1.0, -0.5]), jnp.asarray(EVERYONE)
    )
    np.testing.assert_allclose(traced, expected, atol=1e-4)


def test_mixes_that_add_up_to_the_same_are_told_apart_by_component_only() -> None:
    values = np.asarray([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    together = group_advantages(values.sum(axis=0).tolist())
    assert together[:2].tolist() == pytest.approx([1 / 3, 1 / 3])
    found = component_advantages(values, np.ones(2))
    assert found[0] > found[1] + 0.2


def test_a_value_that_is_not_known_moves_nobody() -> None:
    known = component_advantages(np.asarray([[1.0, 0.0, 0.5]]), np.ones(1))
    missing = component_advantages(np.asarray([[1.0, 0.0, np.nan]]), np.ones(1))
    np.testing.assert_allclose(missing, known, atol=1e-9)
    assert component_advantages(np.full((1, 3), np.nan), np.ones(1)).tolist() == [0.0] * 3


def test_a_batch_of_groups_has_a_root_mean_square_of_one() -> None:
    groups = [np.asarray([2.0, -2.0]), np.asarray([4.0, 0.0, -4.0])]
    scaled = scaled_over_batch(groups)
    assert [len(group) for group in scaled] == [2, 3]
    assert np.sqrt(np.mean(np.concatenate(scaled) ** 2)) == pytest.approx(1.0, abs=1e-5)
    assert scaled_over_batch([]) == []
    assert scaled_over_batch([np.zeros(2)])[0].tolist() == [0.0, 0.0]


def test_length_costs_nothing_up_to_the_buffer_and_all_at_the_limit() -> None:
    lengths = np.asarray([10.0, 80.0, 90.0, 95.0, 100.0, 300.0])
    expected = [0.0, 0.0, -0.5, -0.75, -1.0, -1.0]
    found = overlong_penalty(lengths, limit=100, buffer=20)
    np.testing.assert_allclose(found, expected)
    traced = jax.jit(lambda x: overlong_penalty(x, limit=100, buffer=20))(jnp.asarray(lengths))
    np.testing.assert_allclose(traced, expected)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="one flag a reward"):
        group_advantages([1.0, 2.0], counts_in_baseline=[True])
    with pytest.raises(ValueError, match="finite"):
        group_advantages([1.0, float("nan")])
    with pytest.raises(ValueError, match="unknown estimator 'ppo'"):
        group_advantages([1.0], estimator="ppo")  # type: ignore[arg-type]
