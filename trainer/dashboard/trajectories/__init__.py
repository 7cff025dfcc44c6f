"""The trajectory viewer: rollouts of a run found, read, compared."""

from .routes import ROUTES

__all__ = ["ROUTES"]
