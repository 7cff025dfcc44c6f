"""Weights in the layout that checkpoints use ([out, in], one tensor a layer) to `Params`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .config import ModelConfig
from .decoder import Params
from .errors import ModelError
from .layout import EMBED, HEAD, NORM, Shape, layer_tensors, tensor_name, tensor_shapes

Array = npt.NDArray[np.float32]

TensorSource = Callable[[str], Array]
"""Gives a tensor by the name that Hugging Face uses; raises KeyError when missing."""

_SPARE = ("rotary_emb.inv_freq", HEAD)
"""Ends of names that files may hold beyond need: old buffers, and the head where it is tied."""


def assemble(config: ModelConfig, source: TensorSource, origin: Path) -> Params:
    """The decoder's float32 weights from `source`; ModelError names `origin` and the tensor."""
    shapes = tensor_shapes(config)

    def taken(name: str) -> Array:
        return _take(source, name, shapes[name], origin)

    def stacked(theirs: str) -> Array:
        return np.stack([taken(tensor_name(i, theirs)).T for i in range(config.layers)])

    params: Params = {
        "embed": jnp.asarray(taken(EMBED)),
        "layers": {
            ours: jnp.asarray(stacked(theirs)) for ours, theirs in layer_tensors(config).items()
        },
        "norm": jnp.asarray(taken(NORM)),
    }
    if not config.tied:
        params["head"] = jnp.asarray(taken(HEAD).T)
    return params


def check_tensors(config: ModelConfig, found: Mapping[str, Shape], origin: Path) -> None:
    """ModelError, naming `origin` and a tensor, unless `found` are the weights of `config`."""
    wanted = tensor_shapes(config)
    for name, shape in wanted.items():
        _check(found.get(name), name, shape, origin)
    strange = [name for name in found if name not in wanted and not name.endswith(_SPARE)]
    if strange:
        raise ModelError(
            f"{origin}: tensor {strange[0]} is unknown to a {config.family} of this configuration"
            f" ({len(strange)} such tensors); its configuration is of another architecture"
        )


def _take(source: TensorSource, name: str, shape: Shape, origin: Path) -> Array:
    try:
        tensor = source(name)
    except KeyError:
        _check(None, name, shape, origin)
        raise
    _check(tensor.shape, name, shape, origin)
    return tensor


def _check(found: Shape | None, name: str, wanted: Shape, origin: Path) -> None:
    if found is None:
        raise ModelError(
            f"{origin}: tensor {name} is missing; the file is incomplete or of another architecture"
        )
    if found == wanted:
        return
    if name in (EMBED, HEAD) and found[1:] == wanted[1:]:
        raise ModelError(
            f"{origin}: tensor {name} has shape {found}, so {found[0]} tokens, its configuration"
            f" says a vocabulary of {wanted[0]}; correct vocab_size or get the model again"
        )
    raise ModelError(
        f"{origin}: tensor {name} has shape {found}, its configuration says {wanted};"
        " get the model again, or check its configuration"
    )
