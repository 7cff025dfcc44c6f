"""Commands of this machine: the floor for everything else, and `runc run`."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

place = cache(shutil.which)


class Spawn:
    """fork and exec by posix_spawn, which copies no page tables: the least that can be had."""

    container = ""

    def __init__(self, label: str, image: str) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        self._streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]

    def start(self) -> None:
        """Nothing to start."""

    def run(self, words: list[str]) -> tuple[int, str]:
        """Exit code, and no output."""
        path = place(words[0]) or words[0]
        pid = os.posix_spawn(path, words, os.environ, file_actions=self._streams)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ""

    def timed(self, words: list[str], limit: int) -> bool:
        """Not part of the comparison."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to end."""


class Python(Spawn):
    """subprocess.run, what a Python program would use."""

    def run(self, words: list[str]) -> tuple[int, str]:
        """As above."""
        return subprocess.run(words, capture_output=True, check=False).returncode, ""
