"""Versioned safetensors files: written whole, then renamed, so that nobody reads half of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from patchgym.agent.policies.tensor_files import difference
from patchgym.trainer.model.config import ModelConfig

from .names import hugging_face_shapes, hugging_face_tensors

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params

Precision: TypeAlias = Literal["float32", "bfloat16"]

_PREFIX = "policy-"


def write_weights(
    config: ModelConfig, params: Params, file: Path, *, precision: Precision = "float32"
) -> None:
    """Write `params` to `file` under Hugging Face's names; blocks.

    ValueError, and no file, when `params` aren't the weights of `config`. What is visible under
    `file` is always complete: it is written beside it and renamed.
    """
    arrays = {
        name: in_precision(array, precision) for name, array in hugging_face_tensors(config, params)
    }
    found = {name: array.shape for name, array in arrays.items()}
    if wrong := difference(hugging_face_shapes(config), found):
        raise ValueError(f"these are not the weights of the model: {wrong}")
    save_tensors(arrays, file)


def save_tensors(arrays: dict[str, Any], file: Path) -> None:
    """Write NumPy arrays to a safetensors file, beside its place first; blocks."""
    from safetensors.numpy import save_file

    scratch = scratch_file(file)
    try:
        save_file(arrays, scratch, metadata={"format": "pt"})
        scratch.chmod(0o644)  # a server may run as somebody else
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)


def scratch_file(file: Path) -> Path:
    """Where this process writes `file` before it is renamed."""
    return file.with_name(f".{file.name}.{os.getpid()}")


def version_file(folder: Path, version: int) -> Path:
    """Where the weights of `version` lie in `folder`."""
    return folder / f"{_PREFIX}{version:08d}.safetensors"


def remove_versions(folder: Path, *, keep: int | None = None) -> None:
    """Remove the weights in `folder`, but for the version `keep`; blocks."""
    kept = None if keep is None else version_file(folder, keep)
    for file in folder.glob(f"{_PREFIX}*.safetensors"):
        if file != kept:
            file.unlink(missing_ok=True)
    for scratch in folder.glob(f".{_PREFIX}*.safetensors.*"):
        scratch.unlink(missing_ok=True)


def in_precision(array: Any, precision: Precision) -> Any:
    """A contiguous NumPy array, rounded to nearest even where the precision is less."""
    values = np.ascontiguousarray(np.asarray(array))
    if precision == "float32":
        return values
    import jax.numpy as jnp

    return values.astype(jnp.bfloat16)
