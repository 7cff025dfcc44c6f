"""Policy servers for coin runs, each a process that can be shot: `python coin_servers.py FILE`.

The conformance server, speaking as vLLM does, around a policy of random letters that takes new
weights by their version. The port that it listens on is written to FILE.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from patchgym.agent import Completion, PolicyLoad, SampleRequest
from patchgym.agent.policies.conformance_server import ConformanceServer

LETTERS = range(97, 105)
STAGES = ("pause", "start_weight_update", "update_weights", "reset_prefix_cache", "resume")


class Letters:
    """A letter every 20 ms, drawn by the seed."""

    version = 0

    async def sample(self, request: SampleRequest) -> Completion:
        draw = random.Random(request.seed)
        tokens = tuple(draw.choice(LETTERS) for _ in range(request.max_new_tokens))
        await anyio.sleep(0.02 * len(tokens))
        return Completion(
            tokens=tokens,
            logprobs=(-2.08,) * len(tokens),
            policy_version=self.version,
            finish="length",
        )

    def load(self) -> PolicyLoad:
        return PolicyLoad()

    async def check(self, body: Any) -> tuple[int, Any]:
        return 200, {"results": [None]}

    async def taken(self, body: Any) -> tuple[int, Any]:
        return 200, {}

    async def finished(self, body: Any) -> tuple[int, Any]:
        self.version = int(body["weight_version"])
        return 200, {}


async def serve(file: Path) -> None:
    letters = Letters()
    routes = {f"/{stage}": letters.taken for stage in STAGES}
    routes |= {"/collective_rpc": letters.check, "/finish_weight_update": letters.finished}
    async with ConformanceServer(letters, routes=routes) as server:
        partial = file.with_suffix(".partial")
        partial.write_text(server.url.rpartition(":")[2])
        partial.replace(file)
        await anyio.sleep_forever()


class CoinServer:
    """A server process that may be killed, and started anew at another port."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.start()

    def start(self) -> None:
        """Return once it listens."""
        self._file.unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, __file__, str(self._file)])
        _wait_for(self._file.exists)

    def port(self) -> int:
        """Where it listens, or listened."""
        return int(self._file.read_text())

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


def _wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.02)


if __name__ == "__main__":
    anyio.run(serve, Path(sys.argv[1]))
