"""Detailed profiles of a run: targeted captures, and names for what they show.

Importing this package does not import JAX.
"""

from patchgym.trainer.profile_config import LONGEST, SHORTEST, ProfileConfig

from .annotations import stage, step
from .asking import ask_for_capture
from .service import ProfileService
from .waits import Observation

__all__ = [
    "LONGEST",
    "SHORTEST",
    "Observation",
    "ProfileConfig",
    "ProfileService",
    "ask_for_capture",
    "stage",
    "step",
]
