"""The server around the pages: one process, one port, and an end that waits for nobody."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Collection
from pathlib import Path

import uvicorn

from patchgym.trainer.errors import UserError

from .access import access_for
from .app import create_app
from .assets import address_of
from .pages import warm
from .trajectories import warm_reading


def serve(
    root: Path,
    *,
    host: str,
    port: int,
    token: str,
    names: Collection[str],
    tell: Callable[[str], None],
) -> None:
    """Serve the runs in `root` until interrupted. `tell` gets the address once it is open.

    `port` 0 takes any that is free. UserError for an address that can't be had, and for one that
    others reach without a token.
    """
    access = access_for(host, token, names)
    address_of("plotly.js")  # packed now, not for the first page
    warm()
    warm_reading()
    _settle()
    opened = _listen(host, port)
    with opened:
        app = create_app(root, access=access)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        tell(_address(host, opened.getsockname()[1], token))
        uvicorn.Server(config).run(sockets=[opened])


def _settle() -> None:
    """Keep the garbage collector from what has been loaded: going through all of it takes longer
    than most pages do, and whoever asks for one at that moment would wait for it."""
    gc.collect()
    gc.freeze()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(address)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise UserError(
            f"--host {host} --port {port}: can't be listened on: {error.strerror or error}; pick "
            "another --port (0 takes any that is free), or another --host"
        ) from None
    return opened


def _address(host: str, port: int, token: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
