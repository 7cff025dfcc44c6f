"""vLLM servers on nodes of a Ray cluster, found by what the nodes declare.

vllm:ray          every node with `vllm_server` has one server, at port 8000
vllm:ray:PORT     at another; a node with `"vllm_server": N` has N, at PORT and those after it
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from patchgym.sandbox.ray import ClusterError, connected, nodes

from .section import server_port

RESOURCE = "vllm_server"
"""Custom resource of a node: how many servers listen there."""


@asynccontextmanager
async def ray_servers(use: str, address: str) -> AsyncIterator[tuple[str, ...]]:
    """URLs of the servers that `use` means in the cluster at `address`, which this process has
    joined for the length of the block. Raises ClusterError when there are none."""
    port = server_port(use)
    assert port is not None, use
    async with connected(address):
        found = [
            f"http://{_host(node.address)}:{port + number}"
            for node in await nodes((RESOURCE,))
            for number in range(int(node.resources.get(RESOURCE, 0)))
        ]
        if not found:
            raise ClusterError(
                f"{use}: no node of the Ray cluster at {address} declares `{RESOURCE}`: start that "
                f"of a server with `ray start --address={address} "
                f"--resources='{{\"{RESOURCE}\": 1}}'`, or name servers as vllm:http://HOST:PORT"
            )
        yield tuple(sorted(found))


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
