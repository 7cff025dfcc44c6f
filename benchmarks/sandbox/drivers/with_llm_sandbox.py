"""llm-sandbox, without its set-up of a Python environment, which would ask PyPI."""

from __future__ import annotations

import json
import shlex
from typing import Any

from llm_sandbox import SandboxSession
from llm_sandbox.exceptions import SandboxTimeoutError
from llm_sandbox.pool import PoolConfig, PooledSandboxSession, create_pool_manager


class Plain:
    """A session that makes its container. Only code has a timeout there, commands have none."""

    def __init__(self, label: str, image: str) -> None:
        labels = dict([label.split("=")])
        self._configs = {
            "command": ["sleep", "infinity"],
            "labels": labels,
            "network_mode": "none",
        }
        self._image = image
        self.container = ""

    def start(self) -> None:
        """Open a session."""
        self._session = self._new()
        self._session.open()
        self.container = str(self._session.container.id)

    def run(self, words: list[str]) -> tuple[int, str]:
        """execute_command."""
        done = self._session.execute_command(shlex.join(words))
        return done.exit_code, done.stdout + done.stderr

    def timed(self, words: list[str], limit: int) -> bool:
        """Python code that runs the command."""
        code = f"import subprocess\nsubprocess.run({json.dumps(words)})\n"
        try:
            self._session.run(code, timeout=limit)
        except SandboxTimeoutError:
            return True
        return False

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def _new(self) -> Any:
        return SandboxSession(
            image=self._image,
            lang="python",
            skip_environment_setup=True,
            runtime_configs=self._configs,
        )


class Pooled(Plain):
    """A pool of one; closing a session gives its container to the next."""

    def __init__(self, label: str, image: str) -> None:
        super().__init__(label, image)
        self._pool = create_pool_manager(
            config=PoolConfig(max_pool_size=1, min_pool_size=1),
            image=image,
            runtime_configs=self._configs,
            skip_environment_setup=True,
        )

    def _new(self) -> Any:
        return PooledSandboxSession(pool_manager=self._pool)
