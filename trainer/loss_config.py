"""Which loss a learner minimizes: settings, what reads which, and pairs that are known not to work.

Imports no JAX, so that the command line can read it. docs/learner.md has the table of papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal

LossName = Literal[
    "clipped", "ppo", "reinforce", "cispo", "gspo", "gspo_token", "sapo", "dppo", "nll"
]
Aggregation = Literal["constant", "token_mean", "sequence_mean", "prompt_mean"]
Proximal = Literal["sampler", "step_start"]
Correction = Literal["none", "token", "sequence"]
KLEstimator = Literal["k1", "k2", "k3"]
Overlong = Literal["mask", "keep", "soft"]

SEQUENCE_RATIOS: frozenset[LossName] = frozenset({"gspo", "gspo_token"})
"""Losses whose ratio is one number a sequence."""

SEQUENCE_CLIP_LIMIT = 0.05
"""Widest clip range of a sequence ratio: a mean over tokens hardly leaves 1, so that a token's
range would never act."""

_READS: Mapping[LossName, frozenset[str]] = MappingProxyType(
    {
        "clipped": frozenset({"clip_low", "clip_high", "ratio_cap"}),
        "ppo": frozenset({"clip_low", "clip_high", "dual_clip", "proximal"}),
        "reinforce": frozenset({"correction"}),
        "cispo": frozenset({"ratio_cap"}),
        "gspo": frozenset({"clip_low", "clip_high", "proximal"}),
        "gspo_token": frozenset({"clip_low", "clip_high", "proximal"}),
        "sapo": frozenset({"sapo_positive", "sapo_negative", "proximal"}),
        "dppo": frozenset({"divergence_limit", "ratio_cap"}),
        "nll": frozenset(),
    }
)
_REJECTION = frozenset({"reject_low", "reject_high"})
_SOFT = frozenset({"overlong_tokens", "overlong_buffer", "overlong_penalty"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """Settings of the loss; the defaults are those of docs/learner.md."""

    loss: LossName = "clipped"
    """What each sampled token adds: see the table in docs/learner.md."""
    clip_low: float = 0.2
    """A negative advantage stops pushing below the ratio 1 - clip_low."""
    clip_high: float = 0.28
    """A positive advantage stops pushing above the ratio 1 + clip_high (DAPO's clip-higher)."""
    ratio_cap: float = 2.0
    """Importance weights are truncated here (truncated importance sampling)."""
    dual_clip: float = 0.0
    """`ppo`: a negative advantage stops pushing above this ratio, more than 1; 0: it never does."""
    sapo_positive: float = 1.0
    """`sapo`: how sharply the gate closes for a positive advantage."""
    sapo_negative: float = 1.05
    """`sapo`: the same for a negative one."""
    divergence_limit: float = 0.15
    """`dppo`: probability by which the token may have moved, 0 to 1, before it is masked."""
    proximal: Proximal = "sampler"
    """Policy that the clip is relative to: the sampler's, or the learner's at the step's start."""
    correction: Correction = "none"
    """Importance weight from the sampler's policy: none, a token's, or a sequence's product."""
    reject_low: float = 0.0
    """Nats a token: a sequence whose mean log-ratio is below minus this adds nothing; 0: off."""
    reject_high: float = 0.0
    """Nats a token: the same for one whose mean log-ratio is above this."""
    kl_coefficient: float = 0.0
    """Weight of the KL divergence from the initial weights, which are then kept; 0: none."""
    kl_estimator: KLEstimator = "k3"
    """How that divergence is estimated from the sampled tokens."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus; 0: none."""
    aggregation: Aggregation = "constant"
    """How tokens are averaged: see docs/learner.md."""
    length_normalizer: int = 128
    """`constant`: the token sum is over (sequences x this); use the sampled-token limit."""
    updates: int = 1
    """Optimizer updates a batch, each on a share of its groups."""
    overlong: Overlong = "mask"
    """Rollouts cut off by a limit: `mask` leaves them out, `keep` trains on them, `soft` is `mask`
    with a penalty for those that came close."""
    overlong_tokens: int = 0
    """`soft`: sampled tokens at which the whole penalty is due."""
    overlong_buffer: int = 0
    """`soft`: tokens before that over which it grows from 0."""
    overlong_penalty: float = 1.0
    """`soft`: what is taken off the reward at most."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a value that could not work."""
        check_loss(self)

    @property
    def by_sequence(self) -> bool:
        """It reads whole sequences, which then can't share sampled tokens."""
        return (
            self.loss in SEQUENCE_RATIOS
            or self.correction == "sequence"
            or self.reject_low > 0
            or self.reject_high > 0
        )

    @property
    def reads_all(self) -> bool:
        """Tokens without an advantage add to it, too."""
        return self.kl_coefficient > 0 or self.entropy_coefficient > 0


def check_loss(config: LossConfig) -> None:
    """Raise ValueError, naming the field, for a value that could not work or has no effect."""
    _check_ranges(config)
    _check_effect(config)
    if config.loss in SEQUENCE_RATIOS and max(config.clip_low, config.clip_high) > (
        SEQUENCE_CLIP_LIMIT
    ):
        raise ValueError(
            f"learner.clip_low and clip_high are {config.clip_low:g} and {config.clip_high:g} with "
            f"loss = {config.loss!r}: a sequence's ratio hardly leaves 1, so that they would never "
            "act; set clip_low = 3e-4 and clip_high = 4e-4"
        )


def _check_ranges(config: LossConfig) -> None:
    soft = config.overlong == "soft"
    checks = {
        "clip_low": 0 <= config.clip_low < 1,
        "clip_high": config.clip_high >= 0,
        "ratio_cap": config.ratio_cap >= 1,
        "dual_clip": config.dual_clip == 0 or config.dual_clip > 1,
        "sapo_positive": config.sapo_positive > 0,
        "sapo_negative": config.sapo_negative > 0,
        "divergence_limit": 0 < config.divergence_limit < 1,
        "reject_low": config.reject_low >= 0,
        "reject_high": config.reject_high >= 0,
        "kl_coefficient": config.kl_coefficient >= 0,
        "entropy_coefficient": config.entropy_coefficient >= 0,
        "length_normalizer": config.length_normalizer > 0,
        "updates": config.updates >= 1,
        "overlong_tokens": config.overlong_tokens > 0 if soft else True,
        "overlong_buffer": 0 < config.overlong_buffer <= config.overlong_tokens if soft else True,
        "overlong_penalty": config.overlong_penalty > 0,
    }
    for name, good in checks.items():
        if not good:
            raise ValueError(f"learner.{name} can't be {getattr(config, name)!r}")


def _check_effect(config: LossConfig) -> None:
    """A key that was set but that nothing reads is a mistake."""
    by_loss = frozenset().union(*_READS.values())
    reads = set(_READS[config.loss])
    if config.proximal == "step_start":
        reads.add("correction")
    if config.correction != "none":
        reads.add("ratio_cap")
    for name in sorted(by_loss - reads):
        _refuse_unread(config, name, f"loss = {config.loss!r}")
    if config.loss == "nll":
        for name in sorted(_REJECTION):
            _refuse_unread(config, name, "loss = 'nll'")
    if config.kl_coefficient == 0:
        _refuse_unread(config, "kl_estimator", "kl_coefficient = 0")
    if config.aggregation != "constant":
        _refuse_unread(config, "length_normalizer", f"aggregation = {config.aggregation!r}")
    if config.overlong != "soft":
        for name in sorted(_SOFT):
            _refuse_unread(config, name, f"overlong = {config.overlong!r}")
    if config.proximal == "step_start" and config.updates == 1:
        raise ValueError(
            "learner.proximal is 'step_start' with learner.updates = 1: the ratio would be 1 and "
            "the clip would never act; set updates to 2 or more, or leave proximal out"
        )


def _refuse_unread(config: LossConfig, name: str, because: str) -> None:
    default = next(each.default for each in fields(LossConfig) if each.name == name)
    value = getattr(config, name)
    if value != default:
        raise ValueError(
            f"learner.{name} is {value!r}, which nothing reads with learner.{because}: leave it out"
        )


def unstable(config: LossConfig, *, max_staleness: int, per_step: int) -> str:
    """Why `config` is known not to work in such a run, and what to set; empty when nothing is.

    `max_staleness` is the learner's version minus a trajectory's oldest, `per_step` the groups of a
    batch.
    """
    stale = f"with group.max_staleness = {max_staleness}"
    uncorrected = config.correction == "none"
    table = {
        f"learner.updates is {config.updates} with group.per_step = {per_step}: an update needs a "
        "group; lower updates": config.updates > per_step,
        "learner.loss is 'nll': nothing bounds how far it pushes a token down; train with "
        "'reinforce' or 'clipped', nll is for patchgym sft": config.loss == "nll",
        "learner.overlong is 'keep': rollouts cut off by a limit are not scored; leave it "
        "out": config.overlong == "keep",
        f"learner.loss is 'reinforce' without correction {stale}: gradients of another policy's "
        "samples are biased; set correction = 'token', or max_staleness = 0": (
            config.loss == "reinforce" and uncorrected and max_staleness > 0
        ),
        f"learner.loss is 'reinforce' without correction with learner.updates = {config.updates}: "
        "after the first update the samples are another policy's; set correction = 'token'": (
            config.loss == "reinforce" and uncorrected and config.updates > 1
        ),
        f"learner.loss is 'reinforce' {stale}: weighted, but unclipped policy gradients collapse "
        "there; set loss = 'clipped', or max_staleness = 1": (
            config.loss == "reinforce" and max_staleness > 1
        ),
        f"learner.proximal is 'step_start' without correction {stale}: nothing accounts for the "
        "gap between sampler and learner; set correction = 'token'": (
            config.proximal == "step_start" and uncorrected and max_staleness > 0
        ),
        f"learner.loss is 'ppo' without dual_clip {stale}: a negative advantage's ratio has no "
        "bound; set dual_clip = 3.0, or loss = 'clipped'": (
            config.loss == "ppo" and config.dual_clip == 0 and max_staleness > 1
        ),
    }
    return next((words for words, holds in table.items() if holds), "")
