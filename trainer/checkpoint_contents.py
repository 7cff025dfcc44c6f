"""What a checkpoint's arrays are, beside those that a learner has; and its parameters alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
import orbax.checkpoint as ocp

Described: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array by its place, as in `params/layers/query`."""

_ADAPTERS = ("/A", "/B")
"""How the places of adapters end."""


def describe(tree: Any) -> Described:
    """Shape and dtype of every leaf of `tree`, which may be arrays or what Orbax says of them."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        "/".join(_part(key) for key in path): (tuple(leaf.shape), str(np.dtype(leaf.dtype)))
        for path, leaf in leaves
    }


def difference(saved: Described, wanted: Described) -> str | None:
    """What keeps the arrays `saved` from going where `wanted` are, and what to do; None if nothing.

    Orbax itself casts another dtype and says nothing.
    """
    apart = sorted(
        name for name in saved.keys() | wanted.keys() if saved.get(name) != wanted.get(name)
    )
    if not apart:
        return None
    weights = [name for name in apart if name.startswith("params/")]
    name = (weights or apart)[0]
    words = f"{name} is {_words(saved.get(name))} in it and {_words(wanted.get(name))} here"
    if any(name.endswith(_ADAPTERS) for name in weights):
        return (
            f"it has other adapters: {words}; "
            "use the learner.lora settings and the model.path that it was made with"
        )
    if weights:
        return f"it is of another architecture: {words}; use the model.path that it was made with"
    return (
        f"it was made with another optimizer setting: {words}; "
        "use the [learner] settings that it was made with"
    )


def restore_params(state: Path, like: Any) -> Any:
    """The parameters in the folder `state` of a checkpoint, and nothing else of it.

    `like` is a tree of arrays with the shapes, dtypes and shardings that they are to have. Errors
    are Orbax's; compare with `difference` first.
    """
    target = {"params": jax.tree.map(abstract, like)}
    arguments = ocp.args.PyTreeRestore(
        item=target,
        restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        partial_restore=True,
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        return reader.restore(state, args=arguments)["params"]


def size(tree: Any) -> int:
    """Bytes of all arrays of `tree`; what compression saves is not counted on."""
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(tree))


def abstract(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, type and sharding of `leaf`: where its restored value must go."""
    return jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype), sharding=leaf.sharding)


def _part(key: Any) -> str:
    """One step of a path: a name or a place, whatever holds it."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _words(found: tuple[tuple[int, ...], str] | None) -> str:
    return f"{found[1]} {list(found[0])}" if found else "missing"
