"""Sandboxes past one machine: Ray places an actor on every Docker host. Needs `patchgym[ray]`.

Importing this does not import ray.
"""

from .cluster import ClusterError, connected, nodes
from .conversation import Conversations, Hello, Service
from .frames import RemoteFailure
from .held import Held
from .hosts import SILENCE, HostPlan, Hosts
from .line import Line
from .peer import EndOfTalk, Handler, Peer, Talk
from .placement import Asking, Place, Placement
from .pool import RESOURCE, RayPool
from .pool_host import SandboxHost

__all__ = [
    "RESOURCE",
    "SILENCE",
    "Asking",
    "ClusterError",
    "Conversations",
    "EndOfTalk",
    "Handler",
    "Held",
    "Hello",
    "HostPlan",
    "Hosts",
    "Line",
    "Peer",
    "Place",
    "Placement",
    "RayPool",
    "RemoteFailure",
    "SandboxHost",
    "Service",
    "Talk",
    "connected",
    "nodes",
]
