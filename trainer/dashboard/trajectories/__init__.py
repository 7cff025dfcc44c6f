"""The trajectory viewer: rollouts of a run found, read, compared."""

from .rollout import warm_reading
from .routes import ROUTES

__all__ = ["ROUTES", "warm_reading"]
