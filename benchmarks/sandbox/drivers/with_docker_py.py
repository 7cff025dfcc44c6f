"""docker-py's exec_run. It has no timeout: callers wait in a thread and walk away."""

from __future__ import annotations

import threading

import docker


class Exec:
    """One container that sleeps."""

    def __init__(self, label: str, image: str) -> None:
        self._client = docker.from_env(max_pool_size=32)
        self._image = image
        self._labels = dict([label.split("=")])
        self.container = ""

    def start(self) -> None:
        """docker run -d."""
        self._made = self._client.containers.run(
            self._image,
            ["sleep", "infinity"],
            detach=True,
            network_mode="none",
            labels=self._labels,
        )
        self.container = str(self._made.name)

    def run(self, words: list[str]) -> tuple[int, str]:
        """exec_run."""
        code, output = self._made.exec_run(words)
        return code, output.decode(errors="replace")

    def timed(self, words: list[str], limit: int) -> bool:
        """exec_run in a thread."""
        thread = threading.Thread(target=self.run, args=[words], daemon=True)
        thread.start()
        thread.join(limit)
        return thread.is_alive()

    def close(self) -> None:
        """docker rm -f."""
        self._made.remove(force=True)
