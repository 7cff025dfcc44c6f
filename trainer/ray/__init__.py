"""A run over a Ray cluster: rollouts beside their sandboxes, rewards on hosts of their own."""

from .section import RaySection, server_port

__all__ = ["RaySection", "server_port"]
