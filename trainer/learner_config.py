"""What a learner can be told; imports no JAX, so that the command line can read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """Settings of one learner; the defaults are those of docs/learner.md."""

    learning_rate: float = 1e-5
    """Peak step size of AdamW."""
    warmup_steps: int = 0
    """Optimizer steps of linear warm-up, from learning_rate / warmup_steps to learning_rate."""
    beta1: float = 0.9
    """AdamW's decay of the first moment."""
    beta2: float = 0.95
    """AdamW's decay of the second moment."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay, times the step size."""
    max_grad_norm: float = 1.0
    """Global gradient norm past which the gradient is scaled down to it."""
    clip_low: float = 0.2
    """A negative advantage stops pushing below the ratio 1 - clip_low."""
    clip_high: float = 0.28
    """A positive advantage stops pushing above the ratio 1 + clip_high (DAPO's clip-higher)."""
    ratio_cap: float = 2.0
    """Importance weights are truncated here, token by token (truncated importance sampling)."""
    mismatch_limit: float = 0.1
    """Nats a token: an alarm is given when sampler and learner differ by more, on average."""
    length_normalizer: int = 128
    """Tokens: the loss is the token sum over (sequences x this); use the sampled-token limit."""
    row_tokens: tuple[int, ...] = (256, 384, 512, 640, 768, 1024)
    """Lengths a row may have, in tokens, ascending; each used one is compiled once."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a value that could not work."""
        rows = self.row_tokens
        checks = {
            "learning_rate": self.learning_rate > 0,
            "warmup_steps": self.warmup_steps >= 0,
            "beta1": 0 <= self.beta1 < 1,
            "beta2": 0 <= self.beta2 < 1,
            "weight_decay": self.weight_decay >= 0,
            "max_grad_norm": self.max_grad_norm > 0,
            "clip_low": 0 <= self.clip_low < 1,
            "clip_high": self.clip_high >= 0,
            "ratio_cap": self.ratio_cap >= 1,
            "mismatch_limit": self.mismatch_limit > 0,
            "length_normalizer": self.length_normalizer > 0,
            "row_tokens": bool(rows) and rows[0] > 0 and list(rows) == sorted(set(rows)),
        }
        for name, good in checks.items():
            if not good:
                raise ValueError(f"learner.{name} can't be {getattr(self, name)!r}")
