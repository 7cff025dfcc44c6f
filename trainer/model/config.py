"""The shape of a decoder: Llama 3, SmolLM2, Qwen2 and 2.5, Qwen3, Gemma 3 (text)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from .rope import RopeScaling

Family: TypeAlias = Literal["llama", "qwen2", "qwen3", "gemma3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyParts:
    """What a family's layers have beyond Llama's."""

    biases: bool = False
    """Biases on the query, key and value projections."""
    head_norms: bool = False
    """Each query and key head is normalized before it is rotated."""
    offset_norms: bool = False
    """Normalization multiplies by 1 + weight, not by weight."""
    post_norms: bool = False
    """Attention's and feed-forward's outputs are normalized before they join the residual."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the square root of the width."""
    gelu: bool = False
    """The gate's activation is GELU (by tanh), not SiLU."""


_PARTS: dict[Family, FamilyParts] = {
    "llama": FamilyParts(),
    "qwen2": FamilyParts(biases=True),
    "qwen3": FamilyParts(head_norms=True),
    "gemma3": FamilyParts(
        head_norms=True, offset_norms=True, post_norms=True, scaled_embedding=True, gelu=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a decoder; hashable, so that it can be a static argument of `jit`."""

    family: Family = "llama"
    """Which parts its layers have; SmolLM2 is a Llama."""
    vocabulary: int
    """Token ids run from 0 to this, exclusive (V)."""
    width: int
    """Size of the residual stream (d)."""
    layers: int
    """Decoder layers (L)."""
    heads: int
    """Query heads (H)."""
    kv_heads: int
    """Key and value heads (K); divides `heads`."""
    head_dim: int
    """Size of one head (D); even."""
    ffn: int
    """Inner size of the gated feed-forward block (F)."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    rope: RopeScaling | None = None
    """How those frequencies are stretched; None for not at all."""
    window: int | None = None
    """Tokens that a windowed layer sees, the token itself among them."""
    windowed: tuple[bool, ...] = ()
    """For each layer, whether it sees only `window` tokens; empty when none does."""
    local_rope_theta: float | None = None
    """Base of the windowed layers' frequencies, which are not stretched then; None for the same
    frequencies as everywhere."""
    query_scalar: float | None = None
    """Scores are divided by its square root; None for `head_dim`."""
    eps: float = 1e-5
    """Added to the mean square in RMS normalization."""
    tied: bool = True
    """True where the output head is the transposed embedding."""
    context: int = 2048
    """The longest sequence, in tokens, that the model was trained for."""

    def __post_init__(self) -> None:
        """Refuse shapes that no decoder can have."""
        if self.family not in _PARTS:
            raise ValueError(f"family={self.family!r} must be one of {', '.join(_PARTS)}")
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_dim", "ffn"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even for rotary embeddings")
        if self.query_scalar is not None and not self.query_scalar > 0:
            raise ValueError(f"query_scalar={self.query_scalar} must be positive")
        self._check_windows()

    def _check_windows(self) -> None:
        if self.windowed and len(self.windowed) != self.layers:
            raise ValueError(f"windowed has {len(self.windowed)} entries for {self.layers} layers")
        if any(self.windowed) != (self.window is not None):
            raise ValueError(f"window={self.window} needs windowed layers, and they need it")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window={self.window} must be at least 1 token")
        if self.local_rope_theta is not None and self.window is None:
            raise ValueError("local_rope_theta is for windowed layers, and there are none")

    @property
    def parts(self) -> FamilyParts:
        """What the layers of this family have."""
        return _PARTS[self.family]

    @property
    def parameters(self) -> int:
        """Count of weights, a tied head counted once."""
        heads = self.heads + 2 * self.kv_heads
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        layer = attention + 3 * self.width * self.ffn + 2 * self.width
        layer += self.parts.biases * heads * self.head_dim
        layer += self.parts.head_norms * 2 * self.head_dim
        layer += self.parts.post_norms * 2 * self.width
        embeddings = self.vocabulary * self.width * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.width
