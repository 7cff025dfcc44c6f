"""How a repository's tests are started, and how their report is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from patchgym.sandbox.errors import SandboxUsageError

KINDS = ("pytest", "unittest", "sympy", "junit")
"""Kinds of report; `log:NAME` stands for the log parser of that name besides."""
PLACES = ("test_files", "test_modules", "test_ids", "report")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCommand:
    """A shell command that runs tests, and the kind of report that it gives.

    Raises SandboxUsageError on a kind or a placeholder that does not exist.
    """

    __test__ = False

    kind: str = "pytest"
    """`pytest`; `unittest`, which is Django's runner too; `sympy`; `junit` for anything that writes
    JUnit XML into the folder or file `{report}`; `log:NAME` for one of swebench's parsers."""
    command: str = ""
    """For the shell, run in the workdir. `{test_files}` stands for the test files, `{test_modules}`
    for them as dotted names below `tests/`, `{test_ids}` for the ids. Our probe goes into its last
    Python, pytest or script word. Empty: `python3 -m pytest` on the ids."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment on top of the sandbox's."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS and not re.fullmatch(r"log:[\w.+-]+", self.kind):
            raise SandboxUsageError(
                f"test report {self.kind!r}: use {', '.join(KINDS)} or log:NAME"
            )
        for name in re.findall(r"\{(\w+)\}", self.command):
            if name not in PLACES:
                known = ", ".join(f"{{{place}}}" for place in PLACES)
                raise SandboxUsageError(f"test command: no placeholder {{{name}}}; use {known}")
        if not self.command and self.kind != "pytest":
            raise SandboxUsageError(f"test report {self.kind}: it needs a test command")
