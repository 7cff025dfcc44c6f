"""The life of a container in swebench's evaluation, by its own functions."""

from __future__ import annotations

import logging
import uuid
from types import SimpleNamespace

import docker
from swebench.harness.docker_utils import cleanup_container, exec_run_with_timeout
from swebench.harness.run_evaluation import create_container


class Evaluation:
    """One container, made and removed as `run_instance` does."""

    def __init__(self, label: str, image: str) -> None:
        self._client = docker.from_env(max_pool_size=32)
        self._spec = SimpleNamespace(image=image, instance_id="bench")
        self._run = label.partition("=")[2]
        self._logger = logging.getLogger("bench")
        self.container = ""

    def start(self) -> None:
        """Create and start."""
        run = f"{self._run}-{uuid.uuid4().hex[:6]}"
        self._made = create_container(self._spec, self._client, run, self._logger)
        self.container = str(self._made.name)
        self._made.start()

    def run(self, words: list[str]) -> tuple[int, str]:
        """exec_run_with_timeout, which does not tell exit codes."""
        output, late, _ = exec_run_with_timeout(self._made, words, 60)
        return int(late), output

    def timed(self, words: list[str], limit: int) -> bool:
        """The same, past its timeout."""
        return bool(exec_run_with_timeout(self._made, words, limit)[1])

    def close(self) -> None:
        """Clean up."""
        cleanup_container(self._client, self._made, self._logger)
