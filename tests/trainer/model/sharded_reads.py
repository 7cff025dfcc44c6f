"""Loads a folder over eight simulated devices and says what was read, by a script.

Usage: python sharded_reads.py FOLDER. Prints one line of JSON: for each weight the index that each
device holds and its bytes as a hexadecimal digest, and every byte range that was read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ |= {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_PLATFORMS": "cpu",
}

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from patchgym.trainer.model.safetensors import load_sharded

READS: list[tuple[str, int, int]] = []
_preadv = os.preadv


def recorded(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
    """`os.preadv`, written down: file, first byte, count."""
    count = _preadv(descriptor, buffers, offset)
    READS.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, offset, count))
    return count


def main(folder: Path) -> None:
    """Load `folder` over a mesh of two by four devices."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("rows", "columns"))

    def place(path: str, shape: tuple[int, ...]) -> NamedSharding:
        specs = {
            "embed": PartitionSpec("columns", None),
            "layers/query": PartitionSpec(None, "rows", "columns"),
            "layers/down": PartitionSpec("rows", None, "columns"),
            "layers/query_bias": PartitionSpec(None, "columns"),
            "head": PartitionSpec(None, "columns"),
        }
        return NamedSharding(mesh, specs.get(path, PartitionSpec()))

    setattr(os, "preadv", recorded)  # noqa: B010
    _, params = load_sharded(folder, place)
    told: dict[str, Any] = {"reads": READS, "weights": {}}
    for path, array in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = "/".join(str(part.key) for part in path)
        told["weights"][name] = [
            {
                "index": [
                    part.indices(size)[:2]
                    for part, size in zip(shard.index, array.shape, strict=True)
                ],
                "digest": hashlib.sha256(np.asarray(shard.data).tobytes()).hexdigest(),
            }
            for shard in array.addressable_shards
        ]
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
