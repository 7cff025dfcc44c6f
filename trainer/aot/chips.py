"""What an estimate takes a chip to be: public figures, and link speeds that are assumed."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One TPU as JAX sees it, a device."""

    name: str
    """As in a topology's name, before the colon."""
    memory: float
    """High-bandwidth memory that a program can have, bytes."""
    peak: float
    """bfloat16 FLOP/s."""
    clock: float
    """Cycles a second of the compiler's estimates."""
    link: float
    """Bytes a second of a collective: one link, one direction."""
    host: float = 10e9
    """Bytes a second between the chip and its host's memory."""


CHIPS = {
    chip.name: chip
    for chip in (
        Chip(name="v5e", memory=15.75 * GIB, peak=197e12, clock=1.5e9, link=45e9),
        Chip(name="v5p", memory=95.74 * GIB, peak=459e12, clock=1.75e9, link=90e9),
        Chip(name="v6e", memory=31.25 * GIB, peak=918e12, clock=1.75e9, link=90e9),
    )
}
"""By name."""

MEMORY_SHARE = 0.92
"""Of a chip's memory, what a step may take."""

MATRIX_UNIT_SHARE = 0.6
"""Of the peak, what the attention kernels are taken to reach: the compiler gives no estimate."""


def chip_of(topology: str) -> Chip:
    """The chip of a topology such as `v5e:4x4`; ValueError for one that isn't known."""
    name = topology.partition(":")[0]
    if name not in CHIPS or ":" not in topology:
        raise ValueError(
            f"topology {topology!r} isn't known: a chip of {', '.join(CHIPS)}, a colon and the "
            "shape, such as v5e:4x4"
        )
    return CHIPS[name]
