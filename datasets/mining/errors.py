"""What ends a mining run: its input, or the machine under it."""

from __future__ import annotations

from patchgym.sandbox.errors import PatchgymError


class MiningError(PatchgymError, ValueError):
    """A repository, setting or file that can't be used; one line that says what to do."""


class MissingObjects(MiningError):
    """The clone lacks objects of a commit: a partial clone, or a damaged one."""


class NoEnvironment(PatchgymError):
    """No environment could be made in which a commit's tests run; the commit is to blame.

    The text is one line.
    """

    def __init__(self, line: str, *, lasting: bool = True) -> None:
        """Without `lasting`, another day may bring one."""
        super().__init__(line)
        self.lasting = lasting
