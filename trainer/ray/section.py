"""The `[ray]` section: where rollouts and rewards run when one machine is not enough."""

from __future__ import annotations

from dataclasses import dataclass

RAY_SERVERS = "vllm:ray"
"""Names the vLLM servers on a cluster's nodes: `vllm:ray` or `vllm:ray:PORT`; see `servers`."""
SERVER_PORT = 8000
"""Of a node's first server."""


def server_port(use: str) -> int | None:
    """The port that `vllm:ray` or `vllm:ray:PORT` means; None for anything else."""
    if use == RAY_SERVERS:
        return SERVER_PORT
    word = use.removeprefix(f"{RAY_SERVERS}:")
    return int(word) if word != use and word.isdecimal() and 0 < int(word) < 65536 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySection:
    """Hosts of a Ray cluster. Nothing else of a configuration changes with it: `sandbox.slots`,
    `scoring.slots` and `rollout.in_flight` stay totals, shared out evenly over the hosts."""

    address: str = ""
    """`HOST:PORT` of a cluster's head, or `auto` for the cluster that this machine is part of;
    empty: everything runs here."""
    hosts: int = 0
    """Nodes that rollouts run on, at most; 0: every node that declares `sandbox_host`, or every
    node where none does."""
    reward_hosts: int = 0
    """Nodes that rewards are worked out on, at most; 0: every node that declares `reward_host`, or
    those that rollouts run on where none does."""
    max_hosts: int = 0
    """Nodes that Ray's autoscaler is asked for, at most, by what waits; 0: it is not asked."""
    per_node: int = 1
    """Hosts on each node; more than one is for simulations."""
    cpus: float = 0.0
    """Processors that Ray sets aside for a host's own process; what runs in sandboxes is not
    Ray's."""
    silence: float = 20.0
    """Seconds without a word from a host after which it counts as lost."""

    def __post_init__(self) -> None:
        for name in ("hosts", "reward_hosts", "max_hosts", "cpus"):
            if getattr(self, name) < 0:
                raise ValueError(f"ray.{name} is {getattr(self, name)}: it must be at least 0")
        if self.per_node < 1:
            raise ValueError(f"ray.per_node is {self.per_node}: it must be at least 1")
        if self.silence < 2:
            raise ValueError(f"ray.silence is {self.silence}: it must be at least 2 seconds")
