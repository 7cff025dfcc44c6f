"""What is wrong with the input of an evaluation, or with its files."""

from __future__ import annotations

from patchgym.sandbox import PatchgymError


class EvaluationError(PatchgymError, ValueError):
    """A file that can't be used; the text is one line, with the file and what to do."""
