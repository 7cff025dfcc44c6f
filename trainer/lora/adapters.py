"""Low-rank adapters and the merged forward: Hu et al. 2021, arXiv:2106.09685.

Axes: L layers, `in` and `out` of a matrix as the decoder keeps it ([in, out]), r the rank, ... the
rows and tokens of activations.

The weight W of a target becomes W' = W + (alpha / r) A B. Only A and B are trained; B begins at
zero, so that the first forward is the base model's. Two forms of the same numbers:

    merged    W' itself, as an array: for a sampler, an export
    adapted   W, A and B, of which `x @ adapted` makes x W' and cheap gradients: for training

Deviations from the paper:

- the forward is one product x W', where the paper trains with two, x W + s (x A) B: equal but for
  rounding, and what a sampler computes that serves merged weights;
- A is drawn with variance 1 / in: the paper says "random Gaussian" without a variance;
- all seven matrices of a layer by default, where the paper adapts attention's;
- no dropout: the sampler has none, and a policy gradient needs the sampler's probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from patchgym.trainer.model.config import ModelConfig

from .config import TARGETS, LoraConfig, adapter_shapes
from .product import merged_matrix, merged_product

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params

Adapters: TypeAlias = dict[str, dict[str, Any]]
"""By target, `A` [L, in, r] and `B` [L, r, out], float32; without L for a single layer."""


@partial(jax.tree_util.register_dataclass, data_fields=["weight", "a", "b"], meta_fields=["scale"])
@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """A matrix with an adapter, in the place of an array, of which it can do what a layer asks for.

    A pytree, so that a scan over layers takes one layer of it at a time.
    """

    weight: jax.Array
    """W [in, out], frozen; of any floating type."""
    a: jax.Array
    """A [in, r], float32."""
    b: jax.Array
    """B [r, out], float32."""
    scale: float
    """What multiplies A B."""

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        """x W' [..., out] of `x` [..., in], in the type of `x`."""
        return merged_product(x, self.weight, self.a, self.b, self.scale)

    def astype(self, dtype: DTypeLike) -> Adapted:
        """Itself: products are in the type of `x`, and W' is rounded once, after A B is added."""
        return self


def init_adapters(config: LoraConfig, model: ModelConfig, seed: int) -> Adapters:
    """A normal with variance 1 / in, B zero, float32; the same seed gives the same adapters.

    A target's A does not depend on which other targets there are. ValueError without a rank.
    """
    keys = dict(zip(TARGETS, jax.random.split(jax.random.key(seed), len(TARGETS)), strict=True))
    return {
        name: {
            "A": jax.random.normal(keys[name], a, jnp.float32) / math.sqrt(a[1]),
            "B": jnp.zeros(b, jnp.float32),
        }
        for name, (a, b) in adapter_shapes(config, model).items()
    }


def adapted(config: LoraConfig, base: Params, adapters: Adapters) -> Params:
    """The model to train: `hidden_states` takes it as it takes `base`; see `Adapted`.

    The merged weights of one matrix exist at a time, in forward and backward pass. The gradient
    flows into `adapters` alone, and costs no product of a matrix's full gradient. ValueError when
    the adapters aren't those of `config`.
    """
    _check(config, adapters)
    params = _frozen(base)
    layers = params["layers"] | {
        name: Adapted(weight=params["layers"][name], a=pair["A"], b=pair["B"], scale=config.scale)
        for name, pair in adapters.items()
    }
    return {**params, "layers": layers}


def merged(
    config: LoraConfig, base: Params, adapters: Adapters, *, dtype: DTypeLike | None = None
) -> Params:
    """The whole model with its adapters added: `merged_layer` for all layers at once.

    For a sampler, an export, or a small model. The gradient flows into `adapters` alone.
    """
    layers = merged_layer(config, base["layers"], adapters, dtype=dtype)
    return {**_frozen(base), "layers": layers}


def merged_layer(
    config: LoraConfig,
    layer_weights: Mapping[str, jax.Array],
    layer_adapters: Mapping[str, Mapping[str, jax.Array]],
    *,
    dtype: DTypeLike | None = None,
) -> dict[str, jax.Array]:
    """A layer's weights, its targets W [in, out] replaced by W + (alpha / r) A B.

    Of one layer, or of layers stacked on a leading axis. A [in, r] and B [r, out] are multiplied
    and added in float32, whatever the type of W, and the sum is rounded to `dtype`, by default
    W's. Other weights are passed on. The gradient flows into A and B alone. With B zero, every
    value is W's. ValueError when the adapters aren't those of `config`.

    To train, prefer `adapted`: differentiating through an array W' makes its whole gradient, and
    `jax.checkpoint` with `dots_saveable` keeps A B of every layer.
    """
    _check(config, layer_adapters)
    weights = _frozen(layer_weights)
    for name, pair in layer_adapters.items():
        weight = weights[name]
        kind = weight.dtype if dtype is None else dtype
        weights[name] = merged_matrix(weight, pair["A"], pair["B"], config.scale, kind)
    return weights


def _frozen(weights: Mapping[str, Any]) -> Params:
    frozen: Params = jax.tree.map(jax.lax.stop_gradient, dict(weights))
    return frozen


def _check(config: LoraConfig, adapters: Mapping[str, Mapping[str, jax.Array]]) -> None:
    if adapters.keys() != set(config.targets):
        raise ValueError(
            f"there are adapters of {', '.join(adapters) or 'nothing'}, learner.lora.targets are"
            f" {', '.join(config.targets)}"
        )
    for name, pair in adapters.items():
        if pair["A"].shape[-1] != config.rank or pair["B"].shape[-2] != config.rank:
            raise ValueError(
                f"the adapter of {name} has shapes {pair['A'].shape} and {pair['B'].shape}, not the"
                f" rank {config.rank} of learner.lora.rank"
            )
