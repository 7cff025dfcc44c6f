"""Rotary settings in a Hugging Face configuration: two spellings of them, of before and after
version 5, and Gemma's pair of one for each kind of layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config import ModelConfig
from .rope import RopeScaling

_DEFAULT_THETA, _GEMMA_THETA = 10000.0, 1000000.0

_KEYS = {
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "beta_fast", "beta_slow", "attention_factor"},
}
_ALWAYS = {"rope_type", "type", "rope_theta", "original_max_position_embeddings"}
"""What each kind of scaling may say; anything else would change what is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """The rotary part of a `ModelConfig`; see there."""

    theta: float
    """Base of the frequencies."""
    scaling: RopeScaling | None
    """How they are stretched."""
    local_theta: float | None
    """Base of the windowed layers' own frequencies."""


def read_rope(values: Mapping[str, Any], *, gemma: bool, windows: bool) -> Rope:
    """The rotary settings of a `config.json`; ValueError, naming the key, for what is refused."""
    newer, older = values.get("rope_parameters") or {}, values.get("rope_scaling") or {}
    sliding: Mapping[str, Any] = {}
    if gemma:
        newer, sliding = newer.get("full_attention", {}), newer.get("sliding_attention", {})
        if _scaling(sliding, values) is not None:
            raise ValueError(
                f"rotary scaling {sliding.get('rope_type')!r} of sliding_attention is not supported"
            )
    theta = _one("rope_theta", values.get("rope_theta"), newer.get("rope_theta"))
    scaling = _one("rope_scaling", _scaling(older, values), _scaling(newer, values))
    local = _one("local theta", values.get("rope_local_base_freq"), sliding.get("rope_theta"))
    return Rope(
        theta=float(theta or (_GEMMA_THETA if gemma else _DEFAULT_THETA)),
        scaling=scaling,
        local_theta=float(local or _DEFAULT_THETA) if gemma and windows else None,
    )


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """The same settings in both spellings, for readers of either."""
    stretched = {} if config.rope is None else _described(config.rope)
    whole = {"rope_type": "default", "rope_theta": config.rope_theta} | stretched
    settings: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_parameters": whole}
    if config.rope is not None:
        settings["rope_scaling"] = stretched
    if config.family == "gemma3":
        near = {"rope_type": "default", "rope_theta": config.local_rope_theta or _DEFAULT_THETA}
        settings["rope_parameters"] = {"full_attention": whole, "sliding_attention": near}
        settings["rope_local_base_freq"] = near["rope_theta"]
    return settings


def _one(name: str, first: Any, second: Any) -> Any:
    """Whichever is given; ValueError when both are and differ."""
    if first is not None and second is not None and first != second:
        raise ValueError(f"{name} is given twice and differs: {first} and {second}; keep one")
    return second if first is None else first


def _scaling(given: Mapping[str, Any], values: Mapping[str, Any]) -> RopeScaling | None:
    kind = given.get("rope_type", given.get("type", "default"))
    if given.get("partial_rotary_factor") not in (None, 1.0):
        raise ValueError(f"partial_rotary_factor={given['partial_rotary_factor']} is not supported")
    if kind == "default":
        return None
    if kind not in _KEYS:
        raise ValueError(
            f"rotary scaling {kind!r} is not supported (only default, {', '.join(_KEYS)})"
        )
    strange = {key for key, value in given.items() if value is not None}
    strange -= _KEYS[kind] | _ALWAYS | {"partial_rotary_factor"}
    if strange - ({"truncate"} if given.get("truncate") is True else set()):
        raise ValueError(f"rotary scaling {kind!r} with {min(strange)} is not supported")
    if "factor" not in given:
        raise ValueError(f"rotary scaling {kind!r} has no factor")
    original = given.get("original_max_position_embeddings")
    magnitude = given.get("attention_factor")
    return RopeScaling(
        kind=kind,
        factor=float(given["factor"]),
        original=0
        if kind == "linear"
        else int(original or values.get("max_position_embeddings") or 0),
        low=float(given.get("low_freq_factor") or 1.0),
        high=float(given.get("high_freq_factor") or 4.0),
        beta_fast=float(given.get("beta_fast") or 32.0),
        beta_slow=float(given.get("beta_slow") or 1.0),
        magnitude=None if magnitude is None else float(magnitude),
    )


def _described(scaling: RopeScaling) -> dict[str, Any]:
    """What Hugging Face's files say of it."""
    described: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "linear":
        return described
    described["original_max_position_embeddings"] = scaling.original
    if scaling.kind == "llama3":
        return described | {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    described |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
    if scaling.magnitude is not None:
        described["attention_factor"] = scaling.magnitude
    return described
