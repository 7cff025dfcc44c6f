"""`patchgym tasks`: look at tasks, and make, convert and validate them."""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Sequence
from typing import Any

from patchgym.trainer.cli.main import parser

ACTIONS = {
    "import": "convert rows of other formats",
    "inject": "tasks out of a library, by putting bugs into it",
    "mine": "tasks out of a repository's own history",
    "show": "list the tasks of a file, or show one",
    "validate": "gold passes, the empty patch fails",
}
"""Each is a module here with `add_arguments(parser)` and `run(known) -> exit code`."""


def run(words: Sequence[str]) -> int:
    """Entry point."""
    arguments = parser("tasks")
    actions = arguments.add_subparsers(dest="action", required=True)
    for name, text in ACTIONS.items():
        # only the action that is asked for: some need an extra
        module = _module(name) if name in words[:1] else None
        action = actions.add_parser(name, help=text, allow_abbrev=False)
        if module is not None:
            module.add_arguments(action)
    known = arguments.parse_args(words)
    code: int = _module(known.action).run(known)
    return code


def _module(name: str) -> Any:
    module = f"{name}_" if keyword.iskeyword(name) else name
    return importlib.import_module(f"patchgym.trainer.cli.tasks.{module}")
