"""What a learner can be told; imports no JAX, so that the command line can read it."""

from dataclasses import dataclass, field

from .lora import LoraConfig
from .loss_config import LossConfig, check_loss
from .model.execution import Compute, Keep
from .parallel import MeshConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(LossConfig):
    """Settings of one learner; the defaults are those of docs/learner.md."""

    learning_rate: float = 1e-5
    """Peak step size of AdamW."""
    warmup_steps: int = 0
    """Optimizer updates of linear warm-up, from learning_rate / warmup_steps to learning_rate."""
    beta1: float = 0.9
    """AdamW's decay of the first moment."""
    beta2: float = 0.95
    """AdamW's decay of the second moment."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay, times the step size."""
    max_grad_norm: float = 1.0
    """Global gradient norm past which the gradient is scaled down to it."""
    mismatch_limit: float = 0.1
    """Nats a token: an alarm is given when sampler and learner differ by more, on average."""
    skip_budget: int = 3
    """Batches of a run that may be skipped because their loss or gradient is not finite; one more
    stops it."""
    row_tokens: tuple[int, ...] = (256, 384, 512, 640, 768, 1024)
    """Lengths a row may have, in tokens, ascending; each used one is compiled once."""
    compute: Compute = "float32"
    """Type of activations and matrix products; weights and optimizer stay float32."""
    keep: Keep = "products"
    """What a layer keeps for its backward pass: less is slower and takes less memory."""

    first_moment: Compute = "float32"
    """Type in which the optimizer keeps its first moment."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Low-rank adapters, trained in place of all weights."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    """The devices that train, and what is split over them."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a value that could not work."""
        check_loss(self)
        rows = self.row_tokens
        checks = {
            "learning_rate": self.learning_rate > 0,
            "warmup_steps": self.warmup_steps >= 0,
            "beta1": 0 <= self.beta1 < 1,
            "beta2": 0 <= self.beta2 < 1,
            "weight_decay": self.weight_decay >= 0,
            "max_grad_norm": self.max_grad_norm > 0,
            "mismatch_limit": self.mismatch_limit > 0,
            "skip_budget": self.skip_budget >= 0,
            "row_tokens": bool(rows) and rows[0] > 0 and list(rows) == sorted(set(rows)),
        }
        for name, good in checks.items():
            if not good:
                raise ValueError(f"learner.{name} can't be {getattr(self, name)!r}")
