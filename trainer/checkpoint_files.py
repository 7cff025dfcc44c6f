"""Our own files in a checkpoint's folder: how large each file must be, and what was measured.

    <step>/files.json   bytes of every file, written once the checkpoint is whole
    <step>/value.json   what the checkpoint is ranked by, when it was measured after it was written

Orbax reads a checkpoint with a missing file until it meets the gap, and then says so in a page; the
sizes tell it beforehand, by name. A checkpoint without these files is read all the same.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from .checkpoint_ranking import Value, value_from
from .json_file import read_json, write_json

_FILES, _VALUE = "files.json", "value.json"
_METADATA = Path("metadata", "metadata")
"""Where Orbax keeps the JSON mapping of a checkpoint."""


def write_sizes(step: Path) -> None:
    """Note the size of every file of a whole checkpoint."""
    sizes = {
        str(file.relative_to(step)): file.stat().st_size
        for file in sorted(step.rglob("*"))
        if file.is_file() and file.name not in (_FILES, _VALUE)
    }
    write_json(step / _FILES, sizes)


def damage(step: Path) -> str | None:
    """The first file that is missing or has another size, in words; None when all are there."""
    sizes = read_json(step / _FILES)
    for name, size in (sizes or {}).items():
        try:
            found = (step / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if found != size:
            return f"{name} has {found:,} bytes of {size:,}"
    return None


def write_value(step: Path, value: Value) -> None:
    """Keep what was measured after the checkpoint was written."""
    write_json(step / _VALUE, asdict(value))


def read_value(step: Path) -> Value | None:
    """What the checkpoint is ranked by; None when nothing was measured, or it can't be read."""
    later = value_from(read_json(step / _VALUE))
    return later or value_from((read_json(step / _METADATA) or {}).get("value"))
