"""What a repository's tests need to run: base image, packages, set-up, test command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from patchgym.sandbox.testing import TestCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment; equal ones share an image."""

    base: str = "bookworm"
    """`bookworm` or `bullseye` (made here when missing), `debian:NAME` for the same, or the tag of
    another image: a local one, else pulled where a registry answers."""
    packages: tuple[str, ...] = ()
    """Debian packages, installed first."""
    setup: tuple[str, ...] = ()
    """Shell commands, run as root with network before the repository is there."""
    install: tuple[str, ...] = ()
    """Shell commands, run once a commit as root in `workdir` with the repository in place."""
    test_command: str = ""
    """See `TestCommand.command`; empty runs pytest on the test ids."""
    report: str = "pytest"
    """See `TestCommand.kind`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the test command."""
    timeout: float = 900.0
    """Seconds for a whole test run."""
    workdir: str = "/workspace"
    """Where the repository is."""

    @property
    def command(self) -> TestCommand:
        """How to run the tests."""
        return TestCommand(kind=self.report, command=self.test_command, variables=self.variables)
