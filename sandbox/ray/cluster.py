"""A Ray cluster, as far as the kit asks it anything: connect, nodes, and what they declare."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread

from patchgym.sandbox.errors import EngineUnavailable

CONNECT_LIMIT = 60.0  # seconds to join a cluster that answers
PROBE_LIMIT = 5.0  # seconds for an address to accept a connection
NAMESPACE = "patchgym"


class ClusterError(EngineUnavailable):
    """No Ray cluster answers, or it is not fit; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster that is alive."""

    id: str
    """Ray's."""
    name: str
    """Its address and the beginning of its id: unique, for people."""
    address: str
    """Of the machine, as others of the cluster reach it."""
    resources: dict[str, float]
    """What it declares."""


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[None]:
    """A driver of the cluster at `address` (`HOST:PORT`, or `auto` for the one of this machine)
    for the length of the block; one that this process has joined already is used and left as it
    is. Raises ClusterError."""
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    await _probe(address)
    try:
        with anyio.fail_after(CONNECT_LIMIT):
            await anyio.to_thread.run_sync(_join, address, abandon_on_cancel=True)
    except TimeoutError:
        raise ClusterError(
            f"Ray at {address} did not take us in within {CONNECT_LIMIT:.0f} s"
        ) from None
    except Exception as error:  # Ray raises many kinds
        raise ClusterError(f"can't join Ray at {address}: {_first_line(error)}") from error
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(ray.shutdown)


def import_ray() -> Any:
    """The module `ray`. Raises ClusterError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise ClusterError("Ray is not installed here: pip install 'patchgym[ray]'") from None
    return ray


async def nodes(resources: tuple[str, ...]) -> list[Node]:
    """Nodes that are alive and declare the first of `resources` that any node declares, dead ones
    included; every one that is alive where none is declared."""
    ray = import_ray()
    listed = await anyio.to_thread.run_sync(ray.nodes, abandon_on_cancel=True)
    known = [
        Node(
            id=each["NodeID"],
            name=f"{each.get('NodeManagerAddress', '?')}/{each['NodeID'][:6]}",
            address=each.get("NodeManagerAddress", ""),
            resources=dict(each.get("Resources") or {}),
        )
        for each in listed
        if each.get("Alive")
    ]
    for resource in resources:
        if any((each.get("Resources") or {}).get(resource) for each in listed):
            return [each for each in known if each.resources.get(resource)]
    return known


def _join(address: str) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of the thread that it is joined in
    from ray._private import worker

    # Ray prints a cluster's troubles to stdout, which is a program's own. No setting stops it.
    worker.__dict__["print_to_stdstream"] = _log
    import_ray().init(
        address=address,
        namespace=NAMESPACE,
        logging_level=logging.ERROR,
        log_to_driver=False,
        configure_logging=False,
    )


def _log(data: dict[str, Any], **_: object) -> None:
    logging.getLogger("ray").info("%s: %s", data.get("pid"), "\n".join(data.get("lines", ())))


async def _probe(address: str) -> None:
    """Ray itself tries a wrong address for a minute, and then blames something else."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdigit():
        raise ClusterError(f"{address!r} is no address of a Ray cluster: HOST:PORT, or auto")
    try:
        with anyio.fail_after(PROBE_LIMIT):
            stream = await anyio.connect_tcp(host.strip("[]"), int(port))
    except (OSError, TimeoutError, socket.gaierror) as error:
        reason = str(error) or f"no answer within {PROBE_LIMIT:.0f} s"
        raise ClusterError(
            f"nothing answers at {address} ({reason}): start a head there with "
            f"`ray start --head --port={port}`, or name the address that it printed"
        ) from None
    await stream.aclose()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
