"""`patchgym images`: the sandbox base image, and the weights of the quickstart."""

from __future__ import annotations

import json
from collections.abc import Sequence

import anyio

from patchgym.sandbox import ensure_base

from .main import parser


def run(words: Sequence[str]) -> int:
    """Entry point."""
    arguments = parser("images")
    actions = arguments.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="pull or build the base image")
    build.add_argument("--json", action="store_true")
    weights = actions.add_parser("weights", help="fetch the quickstart's weights")
    weights.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    if known.action == "weights":
        from patchgym.datasets.cache import cache_dir
        from patchgym.trainer.model.weights import ensure_weights

        answer = str(ensure_weights(cache_dir()))
    else:
        answer = anyio.run(ensure_base)
    print(json.dumps(answer) if known.json else answer)
    return 0
