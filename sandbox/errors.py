"""What can go wrong in a sandbox, sorted by whose fault it is.

PatchgymError
├── SandboxError            our infrastructure failed: retry elsewhere, never score it
│   ├── EngineUnavailable   no Docker daemon answers
│   ├── ImageError          the image is missing or could not be built
│   ├── SandboxUnavailable  a container could not be made (NameTaken: another has its name)
│   ├── SandboxLost         a container died or stopped answering while leased
│   └── LeaseTimeout        no sandbox became free before the deadline
├── PatchError              the candidate's diff was refused or does not apply
├── CheckoutError           the caller named a repository or a commit that is not there
└── SandboxUsageError       the caller asked for something that can't be (a missing file, ...)
"""

from __future__ import annotations


class PatchgymError(Exception):
    """Root of every error that patchgym raises on purpose; `str()` is one line for a person."""


class SandboxError(PatchgymError):
    """The infrastructure failed; the command or the candidate is not to blame."""


class EngineUnavailable(SandboxError):
    """No Docker daemon answers, or it refuses us."""


class ImageError(SandboxError):
    """An image is missing and could not be pulled or built."""


class SandboxUnavailable(SandboxError):
    """A container could not be created or did not come up."""


class NameTaken(SandboxUnavailable):
    """Another owner has a container of that `name`; it is not ours to remove."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class SandboxLost(SandboxError):
    """A container died, or its supervisor stopped answering, while it was leased."""


class LeaseTimeout(SandboxError):
    """No sandbox became free before the deadline; the message names the culprit."""


class PatchError(PatchgymError):
    """A diff was refused, or does not apply.

    `reason` is one of refused, malformed, mismatch, already_applied, too_large, wrong_paths.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class CheckoutError(PatchgymError):
    """The repository or the commit to check out is not there."""


class SandboxUsageError(PatchgymError, ValueError):
    """The caller asked for something that can't be done, such as reading a missing file."""
