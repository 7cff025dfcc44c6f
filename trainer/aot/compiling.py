"""Compiles for TPUs that aren't there: libtpu is the compiler, the CPU the only device.

`prepare` must run before JAX is imported. Several processes may compile at once.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .memory import largest_buffers, total_bytes

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else a second process ends on libtpu's lock file
    "TPU_SKIP_MDS_QUERY": "1",  # there is no cloud to ask what machine this is
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",  # the same; the topology is asked for by name
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "1",
    "TPU_MIN_LOG_LEVEL": "1",
}


class NoCompiler(Exception):
    """libtpu isn't installed, or can't be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One program."""

    text: str
    """Its scheduled HLO."""
    own: int
    """Bytes a device must have for it."""
    largest: list[tuple[int, str]]
    """Its largest temporaries: bytes, and which arrays."""
    seconds: float
    """Time that the compiler took."""


def prepare() -> None:
    """Set what libtpu reads at its start. Raises NoCompiler when it isn't installed."""
    if importlib.util.find_spec("libtpu") is None:
        raise NoCompiler("libtpu is not installed: run `make aot`, or pip install patchgym[aot]")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def topology_devices(topology: str) -> Sequence[Any]:
    """The devices of `topology`, such as `v5e:4x4`, to compile for. NoCompiler when libtpu can't
    make them up."""
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(topology_name=topology, platform="tpu")
    except (RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise NoCompiler(f"libtpu has no topology {topology!r}: {first}") from error
    devices: Sequence[Any] = found.devices
    return devices


def compile_program(lowered: Any) -> Compiled:
    """Compile what `lower_programs` made; takes minutes."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="patchgym-aot-") as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        text = lowered.compile(compiler_options=options).as_text()
        (report,) = Path(folder).glob("*after_optimizations-memory-usage-report.txt")
        lines = report.read_text(encoding="utf-8")
    return Compiled(
        text=text,
        own=total_bytes(lines),
        largest=largest_buffers(lines, 8),
        seconds=time.monotonic() - started,
    )
