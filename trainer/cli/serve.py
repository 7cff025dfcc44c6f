"""`patchgym runs serve`: the runs of a folder in a browser."""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path

from rich.console import Console

from patchgym.trainer.errors import UserError

_NEEDED = ("jinja2", "numpy", "plotly", "starlette", "uvicorn")
_TOKEN = "PATCHGYM_TOKEN"


def add_serve(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-command's flags."""
    serve = actions.add_parser("serve", help="look at runs and trajectories in a browser")
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; others reach none but this one"
    )
    serve.add_argument("--port", type=int, default=8642, help="0 takes any that is free")
    serve.add_argument(
        "--token",
        default=os.environ.get(_TOKEN, ""),
        help=f"asked for on the first visit (also {_TOKEN}, which no list of processes shows)",
    )
    serve.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="another name that browsers know this server by, behind a proxy",
    )


def run_serve(known: argparse.Namespace) -> int:
    """`runs serve`; UserError when nothing can be served."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"this needs {', '.join(missing)}: run pip install 'patchgym[dashboard]'")
    if not 0 <= known.port <= 65535:
        raise UserError(f"--port {known.port}: give 0 to 65535")
    root: Path = known.folder
    if root.exists() and not root.is_dir():
        raise UserError(f"--folder {root}: not a folder")
    from patchgym.trainer.dashboard.server import serve

    console = Console()

    def tell(address: str) -> None:
        console.print(
            f"runs in {root.resolve()}: {address}  (Ctrl-C ends it)",
            soft_wrap=True, markup=False, highlight=False,
        )  # fmt: skip

    serve(root, host=known.host, port=known.port, token=known.token, names=known.name, tell=tell)
    return 130  # nothing but a signal ends it
