"""The docker command, one process for each exec."""

from __future__ import annotations

import subprocess


class Exec:
    """One container that sleeps."""

    def __init__(self, label: str, image: str) -> None:
        self._label, self._image = label, image
        self.container = ""

    def start(self) -> None:
        """docker run -d."""
        words = ["docker", "run", "-d", "--network", "none", "--label", self._label]
        words += [self._image, "sleep", "infinity"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        self.container = done.stdout.strip()

    def run(self, words: list[str]) -> tuple[int, str]:
        """docker exec."""
        command = ["docker", "exec", self.container, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def timed(self, words: list[str], limit: int) -> bool:
        """docker exec, killed at the limit."""
        command = ["docker", "exec", self.container, *words]
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            return True
        return False

    def close(self) -> None:
        """docker rm -f."""
        subprocess.run(["docker", "rm", "-f", self.container], capture_output=True, check=True)
