"""mini-swe-agent's Docker environment: the docker command, and `docker stop` in the background."""

from __future__ import annotations

import os
import shlex
import sys

os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = os.path.join(sys.prefix, "config")

from minisweagent.environments.docker import DockerEnvironment


class Environment:
    """One environment."""

    def __init__(self, label: str, image: str) -> None:
        self._arguments = ["--rm", "--network", "none", "--label", label]
        self._image = image
        self.container = ""

    def start(self) -> None:
        """Make one."""
        self._made = DockerEnvironment(image=self._image, run_args=self._arguments)
        self.container = self._made.container_id or ""

    def run(self, words: list[str]) -> tuple[int, str]:
        """execute."""
        done = self._made.execute({"command": shlex.join(words)})
        return done["returncode"], done["output"]

    def timed(self, words: list[str], limit: int) -> bool:
        """execute with its own timeout."""
        done = self._made.execute({"command": shlex.join(words)}, timeout=limit)
        return done.get("extra", {}).get("exception_type") == "TimeoutExpired"

    def close(self) -> None:
        """Clean up, once: the object would do it again when it goes."""
        self._made.cleanup()
        self._made.container_id = None
