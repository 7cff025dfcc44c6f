"""The shape of a decoder of the Llama family, of which SmolLM2 is one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a decoder; hashable, so that it can be a static argument of `jit`."""

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
    eps: float = 1e-5
    """Added to the mean square in RMS normalization."""
    tied: bool = True
    """True where the output head is the transposed embedding."""
    context: int = 2048
    """The longest sequence, in tokens, that the model was trained for."""

    def __post_init__(self) -> None:
        """Refuse shapes that no decoder can have."""
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_dim", "ffn"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even for rotary embeddings")

    @property
    def parameters(self) -> int:
        """Count of weights, a tied head counted once."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        layer = attention + 3 * self.width * self.ffn + 2 * self.width
        embeddings = self.vocabulary * self.width * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.width
