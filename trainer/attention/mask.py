"""Who sees whom, from one vector.

Query q of a row sees key k when `k <= q < ends[k]` (indices in the row) and, with a window, when
`positions[q] - positions[k] < window`, so that a token sees itself and the `window - 1` before it
on its path. Every token sees itself: `ends[k] > k` and `window >= 1` always hold.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

MASKED = -1e30
"""Score of a pair that may not see each other; finite, so that no difference of two is NaN."""


def visible(ends: jax.Array, positions: jax.Array, window: int | None) -> jax.Array:
    """The whole mask [..., T, T] (query, key), bool, of `ends` and `positions` [..., T] int32."""
    index = jnp.arange(ends.shape[-1], dtype=jnp.int32)
    return visible_of((index, positions), (index, ends, positions), window)


def visible_of(
    queries: tuple[jax.Array, jax.Array],
    keys: tuple[jax.Array, jax.Array, jax.Array],
    window: int | None,
) -> jax.Array:
    """The mask [..., Tq, T] of queries (index, positions) and keys (index, ends, positions)."""
    index, positions = (array[..., :, None] for array in queries)
    key_index, ends, key_positions = (array[..., None, :] for array in keys)
    return sees(index, key_index, ends, positions, key_positions, window)


def sees(
    query: jax.Array,
    key: jax.Array,
    ends: jax.Array,
    query_positions: jax.Array,
    key_positions: jax.Array,
    window: int | None,
) -> jax.Array:
    """The mask of any pairs: int32 arrays that broadcast, `ends` those of the keys -> bool."""
    seen = (key <= query) & (query < ends)
    if window is not None:
        seen &= query_positions - key_positions < window
    return seen


def token_index(blocks: jax.Array, block: int) -> jax.Array:
    """Indices in the row [..., N * block] of the tokens of its `blocks` [..., N], int32."""
    step = jnp.arange(block, dtype=jnp.int32)
    return (blocks[..., None] * block + step).reshape(*blocks.shape[:-1], -1)


def pad_row(ends: jax.Array, positions: jax.Array, block: int) -> tuple[jax.Array, jax.Array]:
    """`ends` and `positions` [..., T] up to a multiple of `block`; padding sees only itself."""
    length = ends.shape[-1]
    extra = -length % block
    if extra == 0:
        return ends, positions
    alone = jnp.arange(length + 1, length + extra + 1, dtype=jnp.int32)
    alone = jnp.broadcast_to(alone, (*ends.shape[:-1], extra))
    return jnp.concatenate([ends, alone], -1), jnp.concatenate([positions, 0 * alone], -1)


def check_ends(ends: object, index: object = None) -> None:
    """Raise ValueError for concrete `ends` [..., T] that no mask may have.

    `index` [..., T] says which token of the row each is; without it, they lie in order. Values are
    known only outside of `jit`; inside, nothing is checked.
    """
    if isinstance(ends, Tracer) or isinstance(index, Tracer):
        return
    values = np.asarray(ends)
    length = values.shape[-1]
    own = np.arange(length) if index is None else np.asarray(index)
    wrong = (values <= own) | (values > length)
    if wrong.any():
        place = tuple(int(axis) for axis in np.argwhere(wrong)[0])
        raise ValueError(
            f"ends{list(place)} is {values[place]}: it must lie after its own index and at most "
            f"at the row's length {length} (a token always sees itself)"
        )
