"""The learning rate after the warm-up: a half cosine, put on top of the learner's own steps.

The learner's optimizer knows a warm-up and a constant rate. A step of AdamW (weight decay included)
is proportional to its rate, and its moments don't know the rate at all. So a step at the share s of
the rate is s times the step at the whole rate, from the same weights:

    weights = before + s (after - before)

which equals a scheduled AdamW but for one more rounding (SGDR's schedule without restarts,
Loshchilov and Hutter 2017, arXiv:1608.03983; it is written there for epochs, here for updates).
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def rate_share(step: int, *, steps: int, warmup: int, final: float) -> float:
    """Share of the peak rate for update `step` (from 0) of `steps`, `final` to 1.

    1 during the `warmup` updates, which the optimizer shapes itself; then half a cosine towards
    `final`, which would be reached one update past the last.
    """
    if step < warmup or final >= 1:
        return 1.0
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))


def part_of_step(before: Any, after: Any, share: float) -> Any:
    """Weights (a tree) at `share` of the way from `before` to `after`, which is used up.

    For 1 it is `after` itself.
    """
    return after if share == 1.0 else _between(before, after, jnp.float32(share))


def _mix(before: jax.Array, after: jax.Array, share: jax.Array) -> jax.Array:
    way = after.astype(jnp.float32) - before.astype(jnp.float32)
    return (before.astype(jnp.float32) + share * way).astype(after.dtype)


@partial(jax.jit, donate_argnums=1)
def _between(before: Any, after: Any, share: jax.Array) -> Any:
    return jax.tree.map(partial(_mix, share=share), before, after)
