"""A run over a Ray cluster: rollouts beside their sandboxes, rewards on hosts of their own."""

from .section import RAY_SERVERS, RaySection, server_port

__all__ = ["RAY_SERVERS", "RaySection", "server_port"]
