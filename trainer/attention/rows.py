"""What an implementation gets: whole blocks of queries, keys, and their places."""

from typing import Any, NamedTuple

import jax


class Rows(NamedTuple):
    """Queries and keys of B rows; one row of them has no B. Integers are int32.

    Axes: K key heads, G query heads a key head, T keys, Tq queries, D head size. The queries are
    all of the row's or a part; the plan says which block of the row lies where.
    """

    q: jax.Array
    """[B, K, G, Tq, D] float32 or bfloat16."""
    k: jax.Array
    """[B, K, T, D]."""
    v: jax.Array
    """[B, K, T, D]."""
    ends: jax.Array
    """[B, T]: indices in the row."""
    positions: jax.Array
    """[B, T], of the keys; read for a window."""
    query_positions: jax.Array
    """[B, Tq]."""


def gradients(q: jax.Array, k: jax.Array, v: jax.Array) -> Rows:
    """Those of `Rows`; None is how a derivative of one's own says that integers have none."""
    none: Any = None
    return Rows(q, k, v, none, none, none)
