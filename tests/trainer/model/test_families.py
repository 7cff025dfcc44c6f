"""Every family keeps the learner's contract, and has the parts and sizes of published models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from patchgym.trainer.model import ModelConfig, RopeScaling
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.model.hf_describe import describe_config
from patchgym.trainer.model.layout import layer_shapes
from patchgym.trainer.model.rotary import rotary_frequencies, rotary_magnitude

from .family_cases import CASES, random_params, row_logprobs

LENGTH = 40
TOKENS = np.random.default_rng(0).integers(0, 260, LENGTH)

# Each is compiled once for rows of one shape; all windows are shorter than every piece.
CONTRACT = {
    name: replace(case.config, layers=2, windowed=(True, False))
    if case.config.window
    else case.config
    for name, case in CASES.items()
}


def _rows(config: ModelConfig, *rows: tuple[object, object, object]) -> np.ndarray:
    """Logprobs of rows, each of tokens, positions and ends."""
    tokens, positions, ends = (np.array(column) for column in zip(*rows, strict=True))
    return row_logprobs(config, random_params(config, 1), tokens, positions, ends)


@pytest.mark.parametrize("name", CONTRACT)
def test_packed_rows_and_trees_equal_rows_of_their_own(name: str) -> None:
    """A branch of a tree lies further from its trunk in the row than on its path."""
    whole, tail = [LENGTH] * LENGTH, list(range(LENGTH))
    packed = (TOKENS, [*range(15), *range(25)], [15] * 15 + [LENGTH] * 25)
    tree = (TOKENS, [*range(12), *range(12, 26), *range(12, 26)], [40] * 12 + [26] * 14 + [40] * 14)

    def alone(*pieces: slice) -> tuple[object, object, object]:
        tokens = np.concatenate([TOKENS[piece] for piece in pieces])
        return np.concatenate([tokens, np.zeros(LENGTH - len(tokens), int)]), tail, whole

    trunk, branch = slice(0, 12), slice(26, 40)
    apart = (alone(slice(0, 15)), alone(slice(15, 40)), alone(slice(0, 26)), alone(trunk, branch))
    together, tree_row, first, second, one, two = _rows(CONTRACT[name], packed, tree, *apart)
    pieces = np.concatenate([first[:15], second[:25]])
    np.testing.assert_allclose(together, pieces, rtol=0, atol=1e-5)
    np.testing.assert_allclose(tree_row[:26], one[:26], rtol=0, atol=1e-5)
    np.testing.assert_allclose(tree_row[26:], two[12:26], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_new_weights_are_those_that_the_files_have(name: str) -> None:
    config = replace(CASES[name].config, layers=1, windowed=(), window=None, local_rope_theta=None)
    params = jax.eval_shape(lambda: init_params(config, 0))
    expected = {ours: (1, *reversed(shape)) for ours, shape in layer_shapes(config).items()}
    assert {ours: array.shape for ours, array in params["layers"].items()} == expected
    assert sum(array.size for array in jax.tree.leaves(params)) == config.parameters


def _published(config: ModelConfig) -> tuple[str, int]:
    return str(describe_config(config)["model_type"]), config.parameters


def test_parameter_counts_are_those_that_were_published() -> None:
    llama = ModelConfig(
        vocabulary=128256, width=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336,
        tied=False,
    )  # fmt: skip
    qwen2 = ModelConfig(
        family="qwen2", vocabulary=152064, width=3584, layers=28, heads=28, kv_heads=4,
        head_dim=128, ffn=18944, tied=False,
    )  # fmt: skip
    qwen3 = ModelConfig(
        family="qwen3", vocabulary=151936, width=1024, layers=28, heads=16, kv_heads=8,
        head_dim=128, ffn=3072,
    )  # fmt: skip
    gemma3 = ModelConfig(
        family="gemma3", vocabulary=262144, width=1152, layers=26, heads=4, kv_heads=1,
        head_dim=256, ffn=6912,
    )  # fmt: skip
    assert _published(llama) == ("llama", 8_030_261_248)
    assert _published(qwen2) == ("qwen2", 7_615_616_512)
    assert _published(qwen3) == ("qwen3", 596_049_920)
    assert _published(gemma3) == ("gemma3_text", 999_885_952)


# Base 16 and four frequencies: 1, 1/2, 1/4, 1/8 radians a token.


def test_linear_scaling_divides_every_frequency() -> None:
    scaling = RopeScaling(kind="linear", factor=4.0)
    np.testing.assert_allclose(rotary_frequencies(16.0, 8), [1, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(rotary_frequencies(16.0, 8, scaling), [0.25, 0.125, 0.0625, 0.03125])
    assert rotary_magnitude(scaling) == 1.0


def test_llama3_scaling_leaves_fast_and_divides_slow_frequencies_with_a_ramp_between() -> None:
    # In 2 pi x 4 tokens they turn 4, 2, 1 and 1/2 times; the ramp runs from 1 to 3 turns.
    scaling = RopeScaling(kind="llama3", factor=8.0, original=25, low=1.0, high=3.0)
    turns = 25 * 0.5 / (2 * np.pi)
    kept = (turns - 1) / 2
    middle = kept * 0.5 + (1 - kept) * 0.5 / 8
    found = rotary_frequencies(16.0, 8, scaling)
    np.testing.assert_allclose(found, [1, middle, 0.25 / 8, 0.125 / 8])


def test_yarn_scaling_ramps_over_whole_dimensions_and_lengthens_the_vectors() -> None:
    # Two turns in 2 pi x 8 tokens need a frequency of 1/4, dimension 2; half a turn 1/16, 4.
    scaling = RopeScaling(kind="yarn", factor=2.0, original=50, beta_fast=2.0, beta_slow=0.5)
    found = rotary_frequencies(16.0, 8, scaling)
    # Rounded outward, the ramp runs from 1 to 4: kept are 1, 1, 2/3 and 1/3 of each.
    np.testing.assert_allclose(found, [1, 0.5, 0.25 * (2 + 0.5) / 3, 0.125 * (1 + 1) / 3])
    assert rotary_magnitude(scaling) == pytest.approx(1.0693147180559945)
    assert rotary_magnitude(replace(scaling, magnitude=1.5)) == 1.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"family": "opt"}, "family='opt' must be one of llama"),
        ({"window": 4}, "window=4 needs windowed layers"),
        ({"windowed": (True, False)}, "window=None needs windowed layers"),
        ({"window": 0, "windowed": (True, False)}, "at least 1 token"),
        ({"window": 4, "windowed": (True,)}, "windowed has 1 entries for 2 layers"),
        ({"local_rope_theta": 1e4}, "local_rope_theta is for windowed layers"),
        ({"query_scalar": 0.0}, "query_scalar=0.0 must be positive"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(CONTRACT["llama3"], **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"factor": 0.0}, "factor=0.0 must be a positive number"),
        ({"original": 0}, "needs the original context"),
        ({"low": 5.0}, "0 < low=5.0 < high=4.0"),
        ({"kind": "yarn", "beta_slow": 40.0}, "0 < beta_slow=40.0 < beta_fast=32.0"),
        ({"kind": "ntk"}, "'ntk' is not supported"),
    ],
)
def test_scalings_that_no_ramp_can_have_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(RopeScaling(kind="llama3", factor=8.0, original=8192), **change)


def test_what_a_familys_files_have_no_words_for_is_refused_on_export() -> None:
    windows = replace(CONTRACT["llama3"], window=4, windowed=(True, False))
    with pytest.raises(ValueError, match="a llama has no windowed layers"):
        describe_config(windows)
    with pytest.raises(ValueError, match="all from one layer on"):
        describe_config(replace(windows, family="qwen2"))
    with pytest.raises(ValueError, match="has no query_scalar"):
        describe_config(replace(CONTRACT["qwen3"], query_scalar=2.0))
    with pytest.raises(ValueError, match="must be a whole number"):
        describe_config(replace(CONTRACT["gemma3"], query_scalar=2.5))
