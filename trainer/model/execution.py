"""How a decoder is computed: types, what is kept for the backward pass, which attention.

No choice here changes what is computed, beyond rounding. Imports no JAX at run time, so that the
command line can read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from patchgym.trainer.lora.config import LoraConfig

if TYPE_CHECKING:
    from patchgym.trainer.attention import Implementation
    from patchgym.trainer.parallel.layout import Layout

Compute = Literal["float32", "bfloat16"]
"""Type of activations and matrix products; norms, softmax, log-probabilities and sums are always
float32."""

Keep = Literal["products", "attention", "inputs", "host"]
"""What a layer keeps for its backward pass beside its input: all matrix products and attention;
attention alone; nothing; nothing, and the inputs wait in the host's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Hashable, so that it can be a static argument of `jit`."""

    compute: Compute = "float32"
    """Weights are read in this type, whatever type they are stored in."""
    keep: Keep = "products"
    """Less is slower and takes less memory."""
    attention: Implementation = "blocked"
    """`blocked` for CPU and GPU, `pallas` for TPU."""
    block: int = 128
    """Tokens of an attention block."""
    head_chunk: int = 128
    """Positions whose logits exist at a time, at most. Fewer waste less of the last piece; more
    write the head's gradient less often. Memory: 8 x vocabulary bytes a position."""
    layout: Layout | None = None
    """How arrays lie on a mesh of devices; None for one device."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Adapters that are trained in place of all weights."""


HERE = Execution()
"""One device, float32."""

ON_TPU = Execution(attention="pallas", block=512, head_chunk=2048)
"""Kernels, and pieces as large as matrix units want them."""
