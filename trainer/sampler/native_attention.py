"""One token's attention by a kernel in C (`native/attention.c`), for launches on CPU.

XLA multiplies as many tiny matrices as there are turns and heads, over all the room that a window
has, and two thirds of a launch went there. The kernel reads what turns hold and no more, and its
caches may be bfloat16, which XLA on CPU can't write in place. It comes with the package for Linux
on amd64 and arm64; anywhere else `kv_cache` does the same with XLA.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from patchgym.trainer.model.config import ModelConfig

if TYPE_CHECKING:
    from .kv_cache import Pair

_TARGET = "patchgym_attend"
_LANES = 16
"""What the size of a head must be a multiple of."""
_MOST_BANKS = 1024
_LEVELS = (
    ("x86_64_v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86_64_v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("x86_64", set[str]()),
)
"""What the kernel is compiled for, the best first, and what a processor needs for it."""


def serves(config: ModelConfig) -> bool:
    """Whether the kernel is here and can work for this model."""
    on_cpu = jax.default_backend() == "cpu"
    return on_cpu and config.head_dim % _LANES == 0 and _registered()


@cache
def _registered() -> bool:
    if platform.system() != "Linux":
        return False
    machine = platform.machine()
    level = processor_level(Path("/proc/cpuinfo").read_text()) if machine == "x86_64" else "generic"
    path = Path(__file__).parent / "bin" / f"attention-{machine}-{level}.so"
    if not path.is_file():
        return False
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # another C library
        return False
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.patchgym_attend), platform="cpu")
    return True


def processor_level(cpuinfo: str) -> str:
    """The best of `_LEVELS` that every processor in a `/proc/cpuinfo` of amd64 can do."""
    lines = [line for line in cpuinfo.splitlines() if line.startswith("flags")]
    flags = [set(line.partition(":")[2].split()) for line in lines] or [set[str]()]
    common = set.intersection(*flags)
    return next(level for level, needed in _LEVELS if needed <= common)


def attend_native(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    pairs: Sequence[Pair],
    positions: jax.Array,
    window: int | None,
) -> tuple[jax.Array, list[Pair]]:
    """As `kv_cache.attend`."""
    assert len(pairs) <= _MOST_BANKS
    first = jnp.zeros_like(positions) if window is None else positions - window + 1
    caches = [array for pair in pairs for array in pair]
    operands = (q, k, v, positions, first, *caches)
    call = jax.ffi.ffi_call(
        _TARGET,
        (jax.typeof(q), *map(jax.typeof, caches)),
        input_output_aliases={5 + i: 1 + i for i in range(len(caches))},
    )
    mixed, *written = call(*operands)
    return mixed.reshape(q.shape[0], -1), list(zip(written[::2], written[1::2], strict=True))
