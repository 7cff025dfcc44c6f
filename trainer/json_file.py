"""Small JSON files that others read while they are written: each is whole, or not there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_json(path: Path, record: object) -> None:
    """Write `record` beside its place and rename it there. OSError where the disk takes none."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps(record), encoding="utf-8")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a file; None when it is missing, unreadable or something else."""
    with suppress(OSError, ValueError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else None
    return None
