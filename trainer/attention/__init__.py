"""Attention whose mask is one vector: causal, packed, and prefix-tree rows, blocks skipped.

`attend` mixes values, `block_plan` says once per step which blocks must be visited:

    ends ──► block_plan ──► attend (layer 1) ──► attend (layer 2) ──► ...
                            dense | blocked (XLA) | pallas (TPU)

`attend_sharded` and `context_plans` are the same over a mesh of devices, which may split the rows,
the heads, and the tokens in the order of `context_order`. Importing this package imports JAX.
"""

from .attend import Implementation, attend
from .context import attend_sharded, context_order, context_plans
from .plan import BlockPlan, block_plan, visited_blocks

__all__ = [
    "BlockPlan",
    "Implementation",
    "attend",
    "attend_sharded",
    "block_plan",
    "context_order",
    "context_plans",
    "visited_blocks",
]
