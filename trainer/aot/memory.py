"""What a program takes of a device's memory, as the compiler laid it out.

The compiler's report names one sum for each kind of memory: arguments, results and temporaries
together, what is donated counted once. It is the number that it refuses a program by. The sum of
`memory_analysis()`, args + out - alias + temp, is larger: its temporaries hold arguments again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOTAL = re.compile(r"^Memory Space: default.*?^Total bytes: (\d+)", re.MULTILINE | re.DOTALL)
_BUFFER = re.compile(r"^ +[\d.]+\w*\( *\d+%\); +([\d.]+)(B|KiB|MiB|GiB); +\d+; +\d+; (.*)$", re.M)
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Of one program, on each device."""

    program: str
    """Its name."""
    own: int
    """Bytes of its arguments, results and temporaries."""
    beside: int
    """Bytes of what the learner holds meanwhile and the program doesn't read."""

    @property
    def bytes(self) -> int:
        """All that must fit."""
        return self.own + self.beside


def total_bytes(report: str) -> int:
    """The sum of the device's main memory in a `memory-usage-report`.

    Raises ValueError for a text without it.
    """
    found = _TOTAL.search(report)
    if found is None:
        raise ValueError("the compiler's report names no total of the default memory space")
    return int(found.group(1))


def largest_buffers(report: str, count: int) -> list[tuple[int, str]]:
    """The `count` largest temporaries: bytes, and the arrays that lie there one after the other."""
    found = _BUFFER.findall(report.partition("\n\n")[0])
    return [(int(float(size) * _UNITS[unit]), what) for size, unit, what in found[:count]]
