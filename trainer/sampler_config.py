"""What a sampler can be told; imports no JAX, so that the command line can read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Dtype: TypeAlias = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerConfig:
    """Settings of one sampler; every value has a use, and most runs change none."""

    slots: int = 32
    """Turns that run at the same time; more wait in line."""
    context: int = 1024
    """Longest context plus completion, in tokens; no more than the model was trained for."""
    steps_per_launch: int = 8
    """Tokens that every running turn samples before slots are refilled."""
    prefix_cache_mib: int = 512
    """Memory for the keys and values of prompts and finished turns, in MiB; 0 keeps none."""
    dtype: Dtype = "float32"
    """Of what is multiplied; bfloat16 takes less memory and time, logprobs are less exact."""
    compilation_cache: str = "auto"
    """Folder of compiled programs, `auto` for one in the user's cache, empty for none."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a value that could not work."""
        for name in ("slots", "context", "steps_per_launch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.prefix_cache_mib < 0:
            raise ValueError(f"prefix_cache_mib is {self.prefix_cache_mib}: it can't be negative")
        if self.dtype not in get_args(Dtype):
            raise ValueError(f"dtype is {self.dtype!r}: it must be float32 or bfloat16")
