"""A run over a Ray cluster: rollouts beside their sandboxes, rewards on hosts of their own."""

from .section import RaySection

__all__ = ["RaySection"]
