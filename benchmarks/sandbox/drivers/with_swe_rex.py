"""SWE-ReX: its server runs in the container, its client talks HTTP over a published port.

Its start command needs `swerex-remote` in the image (else it would install it from PyPI inside each
container), so it gets an image with that added; see `environments.py`.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine
from typing import Any

from swerex.deployment.docker import DockerDeployment
from swerex.exceptions import CommandTimeoutError
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest


class Execute:
    """`runtime.execute`: a process for each command."""

    def __init__(self, label: str, image: str) -> None:
        self._label, self._image = label, image
        self._loop = asyncio.new_event_loop()
        self.container = ""

    def start(self) -> None:
        """Deploy, and wait for the server."""
        self._deployment = DockerDeployment(
            image=self._image,
            pull="never",
            startup_timeout=60,
            docker_args=["--label", self._label],
        )
        self._do(self._deployment.start())
        self.container = self._deployment.container_name or ""

    def run(self, words: list[str]) -> tuple[int, str]:
        """Execute."""
        done = self._do(self._execute(words))
        return done.exit_code, done.stdout + done.stderr

    def burst(self, count: int, concurrency: int) -> None:
        """`concurrency` clients in one event loop."""

        async def client(times: int) -> None:
            for _ in range(times):
                await self._execute(["true"])

        async def clients() -> None:
            share = [count // concurrency] * concurrency
            await asyncio.gather(*map(client, share))

        self._do(clients())

    def timed(self, words: list[str], limit: int) -> bool:
        """Execute with its own timeout."""
        try:
            self._do(self._execute(words, timeout=limit))
        except CommandTimeoutError:
            return True
        return False

    def close(self) -> None:
        """Stop the deployment."""
        self._do(self._deployment.stop())

    async def _execute(self, words: list[str], timeout: int | None = None) -> Any:
        return await self._deployment.runtime.execute(Command(command=words, timeout=timeout))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)


class Session(Execute):
    """`runtime.run_in_session`: one bash that stays, typed into."""

    def start(self) -> None:
        """Deploy, and open the session."""
        super().start()
        self._do(self._deployment.runtime.create_session(CreateBashSessionRequest()))

    def run(self, words: list[str]) -> tuple[int, str]:
        """Type it in."""
        done = self._do(self._type(words, 60))
        return done.exit_code or 0, done.output

    def burst(self, count: int, concurrency: int) -> None:
        """A session takes one command at a time."""
        if concurrency > 1:
            raise NotImplementedError("a session takes one command at a time")
        for _ in range(count):
            self.run(["true"])

    def timed(self, words: list[str], limit: int) -> bool:
        """With the action's own timeout."""
        try:
            self._do(self._type(words, limit))
        except CommandTimeoutError:
            return True
        return False

    async def _type(self, words: list[str], limit: int) -> Any:
        action = BashAction(command=shlex.join(words), timeout=limit)
        return await self._deployment.runtime.run_in_session(action)
