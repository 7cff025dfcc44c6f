"""`--mirror OWNER/NAME=PATH`: local clones of repositories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchgym.trainer.errors import UserError


def read_mirrors(words: Sequence[str]) -> dict[str, Path]:
    """The clones by owner/name; UserError for a word that is none."""
    mirrors: dict[str, Path] = {}
    for word in words:
        name, _, path = word.partition("=")
        if not path or name.count("/") != 1:
            raise UserError(f"--mirror {word}: write OWNER/NAME=PATH")
        if not Path(path).is_dir():
            raise UserError(f"--mirror {word}: no folder {path}; clone the repository there")
        mirrors[name] = Path(path)
    return mirrors
