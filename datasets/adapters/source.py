"""Where rows come from: a file, folders, or Hugging Face's `datasets`, which is never required."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchgym.datasets.rows import Row, read_rows
from patchgym.datasets.task import TaskError

from .folder import folder_rows

HUB = "hf:"


def open_rows(source: str) -> tuple[Row, ...]:
    """All rows of `hf:NAME[:SPLIT]`, of a folder of tasks, or of a file.

    Raises TaskError (one line) when they can't be read. Blocking.
    """
    if source.startswith(HUB):
        return _hub_rows(source.removeprefix(HUB))
    path = Path(source)
    return folder_rows(path) if path.is_dir() else read_rows(path)


def _hub_rows(words: str) -> tuple[Row, ...]:
    name, _, split = words.partition(":")
    load = _loader(name)
    try:
        loaded = load(name, split=split or None)
    except Exception as error:  # whatever the hub, the network and foreign files bring about
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise TaskError(f"{HUB}{name}: {reason}: give a file that you have instead") from error
    if isinstance(loaded, Mapping):
        if len(loaded) != 1:
            known = ", ".join(loaded)
            raise TaskError(f"{HUB}{name} has several splits: add one of them, :SPLIT ({known})")
        ((split, loaded),) = loaded.items()
    return tuple(
        Row(where=f"{HUB}{name}:{split}:{number}", values=dict(values))
        for number, values in enumerate(loaded, 1)
    )


def _loader(name: str) -> Any:
    """`datasets.load_dataset`; a folder of that name in the path is not it."""
    try:
        load = getattr(importlib.import_module("datasets"), "load_dataset", None)
    except ImportError:
        load = None
    if load is None:
        raise TaskError(
            f"{HUB}{name} is read by Hugging Face's datasets, which is not there: "
            "pip install datasets, or give a file"
        )
    return load
