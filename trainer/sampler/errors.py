"""What can go wrong while sampling; every message is one line for a person."""

from __future__ import annotations

from patchgym.sandbox.errors import PatchgymError


class SamplerError(PatchgymError):
    """The sampler failed, was closed, or made no progress; the message names the cause."""


class ContextOverflow(SamplerError, ValueError):
    """A context and the tokens asked for are longer than the sampler's window."""
