"""The table of reports: as markdown, read back, and compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .cases import Case
from .chips import GIB, MEMORY_SHARE

HEADER = (
    "case",
    "fsdp x cp x tp",
    "keep",
    "GiB",
    "of HBM",
    "peak in",
    "est. step s",
    "est. MFU",
    "compiler s",
    "kernels s",
    "waiting s",
)
SLOWER = 0.05
"""Share by which an estimate may be worse than the committed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the committed table."""

    gib: float
    """Memory a device needs."""
    seconds: float
    """Of a step."""


def cells(case: Case, report: Mapping[str, Any]) -> list[str]:
    """The row of one case, in the order of `HEADER`."""
    parts = [
        sum(program[name] for program in report["programs"].values())
        for name in ("compute", "kernels", "waiting")
    ]
    mesh = case.mesh
    return [
        case.name,
        f"{mesh.fsdp} x {mesh.context} x {mesh.tensor}",
        case.keep,
        f"{report['memory'] / GIB:.2f}",
        f"{report['memory'] / report['available']:.0%}",
        report["peak"],
        f"{report['seconds']:.3f}",
        f"{report['mfu']:.3f}",
        *(f"{part:.3f}" for part in parts),
    ]


def traffic_cells(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    """Of each kind of exchange in `add_rows`: how often, and GiB sent by a device."""
    traffic = report["programs"]["add_rows"]["traffic"]
    found = (traffic.get(kind, {"count": 0, "bytes": 0}) for kind in kinds)
    return [f"{one['count']}, {one['bytes'] / GIB:.2f}" for one in found]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def read_table(text: str) -> dict[str, Line]:
    """Memory and seconds by case, from a page that holds `markdown` of `cells`."""
    lines: dict[str, Line] = {}
    for found in re.finditer(r"^\| (\S+) \|(.*)\|$", text, re.MULTILINE):
        row = dict(
            zip(HEADER[1:], (cell.strip() for cell in found.group(2).split("|")), strict=False)
        )
        try:
            line = Line(gib=float(row["GiB"]), seconds=float(row["est. step s"]))
        except (KeyError, ValueError):
            continue  # another table's row
        lines[found.group(1)] = line
    return lines


def faults(report: Mapping[str, Any], complaints: Sequence[str], before: Line | None) -> list[str]:
    """Why a case does not pass: memory, the compiler's log, or an estimate worse than `before`."""
    found = list(complaints)
    share = report["memory"] / report["available"]
    if share > MEMORY_SHARE:
        found.append(
            f"needs {report['memory'] / GIB:.2f} of {report['available'] / GIB:.2f} GiB, "
            f"{share:.0%} (at most {MEMORY_SHARE:.0%}), in {report['peak']}"
        )
    if before is not None and report["seconds"] > before.seconds * (1 + SLOWER):
        worse = report["seconds"] / before.seconds - 1
        found.append(
            f"a step is estimated at {report['seconds']:.3f} s, {worse:.0%} more than the "
            f"{before.seconds:.3f} s of the committed table (at most {SLOWER:.0%})"
        )
    return found
