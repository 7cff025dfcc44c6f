"""Git on the host, on repositories that may be anyone's: nothing of theirs is run.

A repository's own configuration can name programs, and git starts them for the plainest question:
hooks, a file-system monitor. Whoever asks git on the host asks through here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import PatchgymError

GIT_LIMIT = 300.0  # seconds for one git command on the host
SAFE = (
    *("-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
)


class GitFailure(PatchgymError):
    """Git said no, is not there, or took too long; the text is the first line of its complaint."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines[0])
        self.last = lines[-1]
        """The last line of the complaint."""


def run_git(
    folder: str | Path,
    *words: str,
    variables: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = GIT_LIMIT,
) -> bytes:
    """The output of a git command in `folder`, with nobody's configuration. Blocking.

    `words` may begin with git's own options; `variables` are more environment. Raises GitFailure.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        **(variables or {}),
    }
    command = ["git", *SAFE, "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, env=environment, input=stdin, capture_output=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise GitFailure(["git is not installed on this machine: install it"]) from error
    except subprocess.TimeoutExpired as error:
        raise GitFailure([f"git took more than {timeout:.0f} s"]) from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitFailure(lines or ["no reason given"])
    return done.stdout
