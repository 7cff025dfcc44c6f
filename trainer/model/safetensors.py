"""Reads a Hugging Face folder: config.json, safetensors, tokenizer; whole or a device's slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .assemble import assemble, check_tensors
from .config import ModelConfig
from .decoder import Params
from .errors import ModelError
from .hf_config import read_config
from .layout import EMBED, HEAD, NORM, Shape, layer_shapes, layer_tensors, tensor_name
from .tensor_folder import Index, TensorFolder
from .tokenizer import Tokenizer, load_tokenizer

__all__ = ["ShardingOf", "load_folder", "load_sharded", "read_config"]

ShardingOf: TypeAlias = Callable[[str, Shape], jax.sharding.Sharding]
"""Where a weight goes, by its path in `Params` (`embed`, `layers/query`) and its shape there."""

_SHARED_SPECIALS = frozenset({"<image_soft_token>"})
"""Tokens of a tokenizer shared with larger relatives, for which a text model has no row."""


def load_folder(folder: Path) -> tuple[ModelConfig, Params, Tokenizer]:
    """Shape, float32 weights and tokenizer in the Hugging Face folder `folder`.

    Raises ModelError, in one line that names the file, when something is missing, damaged, or of
    an architecture that is not supported.
    """
    config, tensors = _open(folder)
    params = assemble(config, tensors.read_float32, folder)
    tokenizer = load_tokenizer(folder)
    _check_vocabulary(config, tokenizer, folder)
    return config, params, tokenizer


def load_sharded(
    folder: Path, sharding_of: ShardingOf, *, dtype: npt.DTypeLike = jnp.float32
) -> tuple[ModelConfig, Params]:
    """Shape and weights of `folder`, each weight laid out as `sharding_of` says, in `dtype`.

    This process reads the slices of its own devices, each one once, and no other byte of the data.
    Raises ModelError as `load_folder` does.
    """
    config, tensors = _open(folder)
    names = layer_tensors(config)

    def outer(path: str, name: str, shape: Shape, *, turned: bool = False) -> jax.Array:
        return _placed(sharding_of, path, shape, lambda i: _read(tensors, name, i, dtype, turned))

    def stacked(ours: str, theirs: str, shape: Shape) -> jax.Array:
        def part(index: Index) -> npt.NDArray[Any]:
            layers, *inner = index
            turned = len(inner) == 2
            return np.stack(
                [
                    _read(tensors, tensor_name(layer, theirs), tuple(inner), dtype, turned)
                    for layer in range(*layers.indices(config.layers))
                ]
            )

        return _placed(sharding_of, f"layers/{ours}", (config.layers, *shape[::-1]), part)

    shapes = layer_shapes(config)
    params: Params = {
        "embed": outer("embed", EMBED, (config.vocabulary, config.width)),
        "layers": {ours: stacked(ours, names[ours], shape) for ours, shape in shapes.items()},
        "norm": outer("norm", NORM, (config.width,)),
    }
    if not config.tied:
        params["head"] = outer("head", HEAD, (config.width, config.vocabulary), turned=True)
    return config, params


def _open(folder: Path) -> tuple[ModelConfig, TensorFolder]:
    config = read_config(folder / "config.json")
    tensors = TensorFolder(folder)
    check_tensors(config, tensors.shapes, folder)
    return config, tensors


def _placed(
    sharding_of: ShardingOf, path: str, shape: Shape, part: Callable[[Index], npt.NDArray[Any]]
) -> jax.Array:
    """One weight; a slice that several devices hold is read once."""
    read: dict[tuple[tuple[int, int, int], ...], npt.NDArray[Any]] = {}

    def once(index: Index | None) -> npt.NDArray[Any]:
        places = index or tuple(slice(None) for _ in shape)
        key = tuple(place.indices(size) for place, size in zip(places, shape, strict=True))
        if key not in read:
            read[key] = part(places)
        return read[key]

    return jax.make_array_from_callback(shape, sharding_of(path, shape), once)


def _read(
    tensors: TensorFolder, name: str, index: Index, dtype: npt.DTypeLike, turned: bool
) -> npt.NDArray[Any]:
    """A part of a tensor in `dtype`; `index` and the result are of the transpose when `turned`."""
    part = tensors.read(name, index[::-1] if turned else index)
    return (part.T if turned else part).astype(dtype)


def _check_vocabulary(config: ModelConfig, tokenizer: Tokenizer, folder: Path) -> None:
    """ModelError when the tokenizer gives ids that the embedding has no row for."""
    known = tokenizer._backend.get_vocab()
    outside = {name: i for name, i in known.items() if i >= config.vocabulary}
    outside = {name: i for name, i in outside.items() if name not in _SHARED_SPECIALS}
    if outside:
        name, place = max(outside.items(), key=lambda entry: entry[1])
        raise ModelError(
            f"{folder}: tokenizer.json has token {place} ({name!r}), config.json a vocabulary of"
            f" {config.vocabulary}: they are not of the same model; get the model again"
        )
