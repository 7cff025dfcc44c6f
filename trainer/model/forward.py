"""The decoder's forward pass, as pure functions of its weights. Axes as in `decoder`.

Token q of a row sees token k when `k <= q < ends[k]`. With `ends` equal to the row's length that
is plain causal attention; with the end of each token's segment it is packing; with the end of each
token's subtree, in depth-first order, it is attention over a prefix tree. A windowed layer sees, of
these, the tokens of its own path that are less than `window` positions back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import checkpoint_policies as policies
from jax.ad_checkpoint import checkpoint_name

from patchgym.trainer.attention import BlockPlan, attend, block_plan
from patchgym.trainer.attention.context import attend_sharded, context_plans
from patchgym.trainer.lora.adapters import Adapted
from patchgym.trainer.parallel.layout import CONTEXT, FSDP, TENSOR, Layout, gathered
from patchgym.trainer.parallel.vocabulary import embed_tokens

from .barriers import made_once, made_once_backward
from .config import ModelConfig
from .execution import HERE, Execution, Keep
from .layers import Turn, gated, heads_of, joined, normed, rotary_table, scaled

Params: TypeAlias = dict[str, Any]
"""The weights of a decoder as nested dicts of arrays; `decoder` has their names."""

_INPUT = "layer_input"
_ATTENTION = ("attention_out", "attention_normalizer")


def hidden_states(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    ends: jax.Array,
    *,
    execution: Execution = HERE,
) -> jax.Array:
    """Hidden states [B, T, d] after the final norm, for `tokens`, `positions`, `ends` [B, T] int32.

    Token q sees token k when `k <= q < ends[k]`, which are indices in the row. `positions` are
    depths on the tokens' paths: they rotate, and a windowed layer measures its window by them.
    Where the execution's layout splits tokens, all of T lie in the order of
    `attention.context.context_order`. Matrices may be `lora.adapters.Adapted`.
    """
    rows = _Rows(positions, ends)
    whole = _View.of(config, rows, execution, local=False)
    near = _View.of(config, rows, execution, local=True) if config.windowed else None

    def layer(x: jax.Array, scanned: tuple[Params, jax.Array | None]) -> tuple[jax.Array, None]:
        weights, windowed = scanned
        return _layer(config, execution, weights, x, _Views(rows, whole, near, windowed)), None

    if execution.layout is None:
        x = params["embed"][tokens].astype(execution.compute)
    else:
        x = embed_tokens(execution.layout, params["embed"], tokens, execution.compute)
    x = scaled(config, x)
    kept = jax.checkpoint(layer, policy=_policy(execution.keep), prevent_cse=False)
    flags = jnp.asarray(config.windowed) if config.windowed else None
    x, _ = jax.lax.scan(kept, x, (_rounded(execution, params["layers"]), flags))
    return normed(config, x, params["norm"])


class _Rows(NamedTuple):
    """What a batch's rows are, [B, T] int32 each."""

    positions: jax.Array
    ends: jax.Array


class _View(NamedTuple):
    """What one kind of layer makes of positions and ends, the same in each such layer."""

    turn: Turn
    """Rotation of each token, [B, T, D/2] twice."""
    plan: BlockPlan
    """Blocks of tokens that see each other."""

    @classmethod
    def of(cls, config: ModelConfig, rows: _Rows, execution: Execution, *, local: bool) -> _View:
        """Of the windowed layers where `local`, else of those that see a token's whole path."""
        layout, positions = execution.layout, rows.positions
        window = config.window if local else None
        if layout is None:
            plan = block_plan(rows.ends, execution.block, positions=positions, window=window)
            return cls(rotary_table(config, positions, local=local), plan)
        plan = context_plans(
            rows.ends, execution.block, positions=positions, window=window, mesh=layout.mesh
        )
        positions = layout.constrain(positions, FSDP, CONTEXT)
        return cls(rotary_table(config, positions, local=local), plan)


class _Views(NamedTuple):
    """What a layer sees: one of two views, where the model has windowed layers."""

    rows: _Rows
    whole: _View
    near: _View | None
    windowed: jax.Array | None
    """Whether this layer is windowed, bool scalar."""

    @property
    def turn(self) -> Turn:
        """This layer's rotation."""
        if self.near is None or self.windowed is None:
            return self.whole.turn
        cosine, sine = (
            jnp.where(self.windowed, near, whole)
            for near, whole in zip(self.near.turn, self.whole.turn, strict=True)
        )
        return cosine, sine

    def attend(
        self, config: ModelConfig, execution: Execution, q: jax.Array, k: jax.Array, v: jax.Array
    ) -> jax.Array:
        """Values mixed for q [B, H, T, D], scaled already, over k and v [B, K, T, D]: as q."""

        def through(view: _View, window: int | None) -> jax.Array:
            among: dict[str, Any] = {
                "positions": self.rows.positions,
                "window": window,
                "scale": 1.0,
                "block": execution.block,
                "implementation": execution.attention,
            }
            if execution.layout is None:
                return attend(q, k, v, self.rows.ends, plan=view.plan, **among)
            mesh = execution.layout.mesh
            return attend_sharded(q, k, v, self.rows.ends, plans=view.plan, mesh=mesh, **among)

        if self.near is None or self.windowed is None:
            return through(self.whole, None)
        near = partial(through, self.near, config.window)
        mixed: jax.Array = jax.lax.cond(self.windowed, near, partial(through, self.whole, None))
        return mixed


def _policy(keep: Keep) -> Any:
    """What the backward pass finds instead of computing it again."""
    if keep == "products":
        return policies.save_from_both_policies(
            policies.dots_saveable, policies.save_only_these_names(*_ATTENTION)
        )
    if keep == "attention":
        return policies.save_only_these_names(*_ATTENTION)
    if keep == "inputs":
        return policies.nothing_saveable
    return policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[_INPUT],
        offload_src="device",
        offload_dst="pinned_host",
    )


def _rounded(execution: Execution, layers: Params) -> Params:
    """All `layers`, plain matrices and biases in the type of products.

    XLA rounds all of them before the loop whether or not it is told to. Told, it also stacks their
    gradients in that type, in which they are made: half the memory of two float32 stacks.
    """
    return {
        name: array if name.endswith("norm") else array.astype(execution.compute)
        for name, array in layers.items()
    }


def _read(layout: Layout | None, weights: Params) -> Params:
    """A layer's `weights` where they are multiplied: gathered from the mesh, norms as they lie."""
    if layout is None:
        return weights
    return {
        name: array if name.endswith("norm") else _matrix(layout, name, array)
        for name, array in weights.items()
    }


def _matrix(layout: Layout, name: str, weight: Any) -> Any:
    """One matrix or bias, gathered."""
    if not isinstance(weight, Adapted):
        return gathered(layout, name, weight)
    return replace(
        weight,
        weight=gathered(layout, name, weight.weight),
        a=gathered(layout, "A", weight.a),
        b=gathered(layout, "B", weight.b),
    )


def _layer(
    config: ModelConfig, execution: Execution, weights: Params, x: jax.Array, views: _Views
) -> jax.Array:
    """One decoder layer over `x` [B, T, d]."""
    layout = execution.layout
    weights = _read(layout, weights)
    x = checkpoint_name(_split(layout, x), _INPUT)
    h = normed(config, x, weights["attention_norm"])
    mixed = _split(layout, _attention(config, execution, weights, h, views))
    x = x + joined(config, weights, "attention", mixed)
    h = normed(config, x, weights["mlp_norm"])
    gate, up = (made_once_backward(h @ weights[name]) for name in ("gate", "up"))
    inside = made_once(gated(config, gate, up))
    down = _split(layout, _split(layout, inside, TENSOR) @ weights["down"])
    return _split(layout, x + joined(config, weights, "mlp", down))


def _split(layout: Layout | None, x: jax.Array, last: str | None = None) -> jax.Array:
    """`x` [B, T, ...], rows and tokens split over the mesh, and the last axis over `last`."""
    return x if layout is None else layout.constrain(x, FSDP, CONTEXT, last)


def _attention(
    config: ModelConfig, execution: Execution, weights: Params, h: jax.Array, views: _Views
) -> jax.Array:
    """Grouped-query attention of `h` [B, T, d], output projection included: [B, T, d]."""
    products = (h @ weights["query"], h @ weights["key"], h @ weights["value"])
    q, k, v = (
        heads.transpose(0, 2, 1, 3) for heads in heads_of(config, weights, products, views.turn)
    )
    mixed = views.attend(config, execution, q, k, v).transpose(0, 2, 1, 3)
    projected: jax.Array = mixed.reshape(*mixed.shape[:2], -1) @ weights["output"]
    return projected
