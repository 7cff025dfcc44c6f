"""What can be wrong with a model that was asked for; every message is one line for a person."""

from __future__ import annotations

from patchgym.sandbox.errors import PatchgymError


class ModelError(PatchgymError, ValueError):
    """A model's file is missing, damaged, or of a kind that can't be used."""
