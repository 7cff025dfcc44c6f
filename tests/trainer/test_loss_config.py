"""Settings of the loss that can't work, have no effect, or are known to be unstable."""

from __future__ import annotations

from typing import Any

import pytest

from patchgym.trainer.config import config_from_mapping
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.learner_config import LearnerConfig

GSPO = {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}
SOFT = {"overlong": "soft", "overlong_tokens": 100, "overlong_buffer": 20}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "ppo", "dual_clip": 3.0},
        {"loss": "ppo", "proximal": "step_start", "updates": 2, "correction": "token"},
        {"loss": "reinforce", "correction": "sequence", "ratio_cap": 5.0},
        GSPO,
        {"loss": "cispo", "ratio_cap": 4.0, "aggregation": "token_mean"},
        {"loss": "sapo", "sapo_negative": 1.2},
        {"loss": "dppo", "divergence_limit": 0.2, "reject_low": 0.5, "reject_high": 0.5},
        {"kl_coefficient": 0.01, "kl_estimator": "k2", "entropy_coefficient": 0.001},
        SOFT,
    ],
)
def test_pairs_that_work_are_taken(settings: dict[str, Any]) -> None:
    config_from_mapping({"learner": settings}, source="test")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dual_clip": 3.0}, "learner.dual_clip is 3.0, which nothing reads with learner.loss = "),
        ({"loss": "sapo", "clip_low": 0.1}, "learner.clip_low is 0.1, which nothing reads"),
        ({"loss": "nll", "reject_low": 0.1}, "learner.reject_low is 0.1, which nothing reads"),
        ({"loss": "cispo", "correction": "token"}, "learner.correction is 'token', which nothing"),
        ({"loss": "reinforce", "ratio_cap": 3.0}, "learner.ratio_cap is 3.0, which nothing reads"),
        ({"proximal": "step_start"}, "learner.proximal is 'step_start', which nothing reads"),
        ({"loss": "ppo", "proximal": "step_start"}, "the ratio would be 1 and the clip would"),
        ({"kl_estimator": "k1"}, "learner.kl_estimator is 'k1', which nothing reads"),
        ({"aggregation": "token_mean", "length_normalizer": 9}, "length_normalizer is 9, which"),
        ({"overlong_buffer": 9}, "learner.overlong_buffer is 9, which nothing reads"),
        ({"loss": "gspo"}, "they would never act; set clip_low = 3e-4 and clip_high = 4e-4"),
        ({"overlong": "soft", "overlong_tokens": 9}, "learner.overlong_buffer can't be 0"),
        ({"loss": "ppo", "dual_clip": 0.5}, "learner.dual_clip can't be 0.5"),
        ({"divergence_limit": 1.5}, "learner.divergence_limit can't be 1.5"),
        ({"skip_budget": -1}, "learner.skip_budget can't be -1"),
        ({"loss": "gpso"}, "learner.loss: "),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_mapping({"learner": settings}, source="test")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("learner", "group", "words"),
    [
        ({"loss": "reinforce"}, {}, "biased; set correction = 'token', or max_staleness = 0"),
        ({"loss": "reinforce", "updates": 2}, {"max_staleness": 0}, "after the first update"),
        ({"loss": "reinforce", "correction": "token"}, {"max_staleness": 2}, "collapse there"),
        ({"loss": "ppo", "proximal": "step_start", "updates": 2}, {}, "nothing accounts for the"),
        ({"loss": "ppo"}, {"max_staleness": 2}, "set dual_clip = 3.0, or loss = 'clipped'"),
        ({"updates": 5}, {"per_step": 4}, "an update needs a group; lower updates"),
        ({"loss": "nll"}, {}, "nll is for patchgym sft"),
        ({"overlong": "keep"}, {}, "are not scored"),
    ],
)
def test_unstable_pairs_say_why_and_what_to_set(
    learner: dict[str, Any], group: dict[str, Any], words: str
) -> None:
    LearnerConfig(**learner)  # by itself it is fine
    with pytest.raises(ConfigError) as caught:
        config_from_mapping({"learner": learner, "group": group}, source="test")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_on_policy_training_may_do_without_a_correction() -> None:
    config_from_mapping(
        {"learner": {"loss": "reinforce"}, "group": {"max_staleness": 0}}, source="test"
    )


@pytest.mark.parametrize(
    ("settings", "by_sequence"),
    [
        ({}, False),
        (GSPO, True),
        ({"loss": "reinforce", "correction": "token"}, False),
        ({"loss": "reinforce", "correction": "sequence"}, True),
        ({"reject_high": 0.1}, True),
    ],
)
def test_losses_over_sequences_are_known(settings: dict[str, Any], by_sequence: bool) -> None:
    assert LearnerConfig(**settings).by_sequence == by_sequence
