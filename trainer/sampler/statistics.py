"""What a sampler has done so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerStatistics:
    """A snapshot; counts run from the start of the sampler."""

    version: int
    """Of the newest weights."""
    sampled_tokens: int
    """Tokens that completions are made of, those of running turns included."""
    discarded_tokens: int
    """Tokens computed past the end of a turn, within its last launch."""
    prefill_tokens: int
    """Context tokens that were computed."""
    cached_tokens: int
    """Context tokens that the prefix cache spared."""
    completions: int
    """Turns that finished."""
    cancelled: int
    """Turns whose caller went away."""
    active: int
    """Turns running now."""
    queued: int
    """Turns in line now."""
    busy_seconds: Mapping[str, float]
    """Wall time by kind: `prefill`, `decode`, `copy` (the prefix cache); compilation included."""
    prefix_cache_bytes: int
    """Held by the prefix cache now."""
