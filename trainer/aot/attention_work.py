"""How long the attention kernels take: products of blocks, at a share of the matrix unit's peak.

The compiler has no estimate for Pallas kernels. A visit of one pair of blocks makes 2 products a
query head forward, 3 for dq, 4 for dk and dv, of 2 n n D FLOPs each.
"""

from __future__ import annotations

import numpy as np

from patchgym.trainer.attention.context import context_blocks

from .chips import MATRIX_UNIT_SHARE, Chip

PRODUCTS = {"forward_kernel": 2, "query_gradient_kernel": 3, "key_gradient_kernel": 4}
"""Products of a visit and query head, by the kernel's name."""


def causal_visits(tokens: int, block: int, ranks: int) -> int:
    """Pairs of blocks that the busiest of `ranks` visits in a full causal row."""
    if ranks == 1:
        count = tokens // block
        return count * (count + 1) // 2
    blocks = context_blocks(tokens, block, ranks).reshape(ranks, -1)
    return int(np.max(np.sum(blocks + 1, axis=1)))


def kernel_seconds(
    chip: Chip, *, visits: int, block: int, heads: int, head_dim: int, rows: int = 1
) -> dict[str, float]:
    """Seconds of one call of each kernel, for `rows` and `heads` query heads of a device."""
    product = 2.0 * block * block * head_dim * heads * visits * rows
    rate = chip.peak * MATRIX_UNIT_SHARE
    return {name: count * product / rate for name, count in PRODUCTS.items()}
