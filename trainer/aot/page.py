"""`benchmarks/aot.md`: the committed tables, of which a run may replace some rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .cases import CASES
from .exchange import KINDS
from .running import Outcome
from .table import HEADER, Line, cells, markdown, read_table, traffic_cells

_TITLE = "# The learner's step, compiled for TPUs"
_TEXT = """
Written by `make aot ARGS=--write`; do not edit. `make aot` compiles these again and fails when
memory passes 92% of a chip's, or when a step's estimate is more than 5% above this table.

**Static estimates, no measurements.** No TPU ran anything. The seconds are the TPU compiler's own
cycle counts, times how often loops run, with attention's kernels and the exchanges between chips
computed from stated rates. They compare two versions of the program; they are not a speed. How each
number comes about, and what is left out, is in [docs/tpu.md](../docs/tpu.md).

Memory is the compiler's own allocation, what the learner holds beside included.

"""
_EXCHANGES = """
## What one stack of rows exchanges

How often a device takes part, and the GiB that it sends.

"""


def page(old: str, outcomes: Mapping[str, Outcome], versions: Mapping[str, str]) -> str:
    """The page with the rows of `outcomes` in place of those in `old`, in the order of `CASES`."""
    steps, exchanges = (_rows(part) for part in _parts(old))
    for name, outcome in outcomes.items():
        case = CASES[name]
        steps[name] = cells(case, outcome.report)
        exchanges[name] = [name, *traffic_cells(outcome.report, KINDS)]
    order = [name for name in CASES if name in steps]
    compiler = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{_TITLE}\n{_TEXT}"
        + markdown(HEADER, [steps[name] for name in order])
        + f"\n{_EXCHANGES}"
        + markdown(["case", *KINDS], [exchanges[name] for name in order])
        + f"\n\nLast written with {compiler}; rows of 32,768 tokens; adapters of rank 16.\n"
    )


def read_page(text: str) -> dict[str, Line]:
    """Memory and seconds of each case of a page."""
    return read_table(_parts(text)[0])


def _parts(text: str) -> tuple[str, str]:
    """What is above the exchanges, and what is below."""
    above, _, below = text.partition(_EXCHANGES.splitlines()[1])
    return above, below


def _rows(text: str) -> dict[str, list[str]]:
    """Cells of each table row that begins with a case, by case."""
    found = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    rows = [line.split(" | ") for line in found]
    return {row[0]: row for row in rows if row[0] in CASES}
