"""Who takes part: ours in this process, the others each in a child process of its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from patchgym.sandbox import Pool, Sandbox, SandboxSpec

from .environments import LABEL, Unavailable, python_of

SERVE = Path(__file__).parent / "drivers" / "serve.py"
ANSWER_LIMIT = 120.0  # seconds for any one request
WAIT = 120.0  # seconds for a lease
CLEAN_UP = 60.0  # seconds to remove what a contestant left
RUN_LABEL = f"{LABEL}=run{os.getpid()}"
"""On every container of the others that can be labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A contestant that a child process drives."""

    key: str
    """In names of ratios."""
    name: str
    """In tables."""
    driver: str
    """MODULE:CLASS under drivers/."""
    rival: str = ""
    """Whose environment it needs; empty for this one's."""
    distributions: tuple[str, ...] = ()
    """Whose versions to report."""
    prepared_image: bool = False
    """Needs the image with what rivals call for."""
    lazy_stop: bool = False
    """Its way to end a container waits ten seconds or more for it to listen."""


HOST = Entry(key="host", name="host: fork+exec (posix_spawn)", driver="with_host:Spawn")
SUBPROCESS = Entry(key="subprocess", name="host: subprocess.run", driver="with_host:Python")
DOCKER_PY = Entry(key="docker_py", name="docker-py exec_run", driver="with_docker_py:Exec")
POOLED = Entry(
    key="llm_sandbox_pool",
    name="llm-sandbox pool",
    driver="with_llm_sandbox:Pooled",
    rival="llm-sandbox",
)
OTHERS = (
    DOCKER_PY,
    Entry(key="docker_cli", name="docker exec (CLI)", driver="with_docker_cli:Exec"),
    Entry(
        key="swe_rex",
        name="SWE-ReX execute",
        driver="with_swe_rex:Execute",
        rival="swe-rex",
        distributions=("swe-rex", "aiohttp"),
        prepared_image=True,
    ),
    Entry(
        key="swe_rex_session",
        name="SWE-ReX session",
        driver="with_swe_rex:Session",
        rival="swe-rex",
        distributions=("swe-rex",),
        prepared_image=True,
    ),
    Entry(
        key="llm_sandbox",
        name="llm-sandbox",
        driver="with_llm_sandbox:Plain",
        rival="llm-sandbox",
        distributions=("llm-sandbox",),
        prepared_image=True,
        lazy_stop=True,
    ),
    Entry(
        key="mini_swe_agent",
        name="mini-swe-agent",
        driver="with_mini_swe_agent:Environment",
        rival="mini-swe-agent",
        distributions=("mini-swe-agent",),
        lazy_stop=True,
    ),
    Entry(
        key="swebench",
        name="swebench",
        driver="with_swebench:Evaluation",
        rival="swebench",
        distributions=("swebench",),
        prepared_image=True,
        lazy_stop=True,
    ),
)


class Contestant(Protocol):
    """What the measurements ask of all. Seconds are those of its own call; raises Unavailable."""

    name: str

    async def run(self, words: Sequence[str]) -> float:
        """A command to its end."""

    async def output(self, words: Sequence[str]) -> str:
        """What a command prints."""

    async def burst(self, count: int, concurrency: int) -> float:
        """`true` that often."""

    async def timed(self, words: Sequence[str], limit: int) -> float:
        """Until it gives up on a command that does not end."""


class Ours:
    """A leased sandbox."""

    name = "patchgym"

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def run(self, words: Sequence[str]) -> float:
        """`Sandbox.run`."""
        started = time.perf_counter()
        done = await self.sandbox.run(words, timeout=WAIT)
        seconds = time.perf_counter() - started
        if not done.ok:
            raise Unavailable(f"{words[0]} failed: {done.stderr.text()[:100]}")
        return seconds

    async def output(self, words: Sequence[str]) -> str:
        """Its stdout and stderr."""
        done = await self.sandbox.run(words, timeout=WAIT, cwd="/")
        return done.stdout.text() + done.stderr.text()

    async def burst(self, count: int, concurrency: int) -> float:
        """`concurrency` tasks."""

        async def client() -> None:
            for _ in range(count // concurrency):
                await self.run(["true"])

        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(concurrency):
                tasks.start_soon(client)
        return time.perf_counter() - started

    async def timed(self, words: Sequence[str], limit: int) -> float:
        """With the command's timeout."""
        started = time.perf_counter()
        done = await self.sandbox.run(words, timeout=limit)
        if not done.timed_out:
            raise Unavailable("it did not time out")
        return time.perf_counter() - started


@asynccontextmanager
async def ours(image: str) -> AsyncIterator[Ours]:
    """A lease of a pool of one, for as long as the block lasts."""
    async with Pool(SandboxSpec(image=image), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            yield Ours(sandbox)


class Child:
    """A contestant in a child process. `made` are the containers it has started."""

    def __init__(self, entry: Entry, process: anyio.abc.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.name = entry.name
        self.entry = entry
        self.versions: dict[str, str] = {}
        self.made: list[str] = []
        self._process = process
        self._requests = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)

    async def ask(self, **request: object) -> dict[str, Any]:
        """One request, one answer."""
        try:
            with anyio.fail_after(ANSWER_LIMIT):
                await self._requests.send(json.dumps(request).encode() + b"\n")
                line = await self._answers.receive_until(b"\n", 1 << 20)
        except TimeoutError:
            raise Unavailable(f"no answer to {request.get('do')} in {ANSWER_LIMIT:.0f} s") from None
        except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.EndOfStream):
            raise Unavailable("its process ended") from None
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Unavailable(shortened(str(answer["error"])))
        return answer

    async def start(self) -> float:
        """A fresh container."""
        answer = await self.ask(do="start")
        if answer["container"]:
            self.made.append(answer["container"])
        return float(answer["seconds"])

    async def run(self, words: Sequence[str]) -> float:
        """A command that must succeed."""
        answer = await self.ask(do="run", words=list(words))
        if answer["code"]:
            raise Unavailable(f"{words[0]}: exit code {answer['code']}: {answer['output'][-100:]}")
        return float(answer["seconds"])

    async def output(self, words: Sequence[str]) -> str:
        """What a command prints."""
        return str((await self.ask(do="run", words=list(words)))["output"])

    async def burst(self, count: int, concurrency: int) -> float:
        """`true` that often."""
        answer = await self.ask(do="burst", count=count, concurrency=concurrency)
        return float(answer["seconds"])

    async def timed(self, words: Sequence[str], limit: int) -> float:
        """Until it says that time is up."""
        answer = await self.ask(do="timed", words=list(words), limit=limit)
        if not answer["told"]:
            raise Unavailable("it did not tell that time was up")
        return float(answer["seconds"])

    async def close(self) -> float:
        """End the container as its users do."""
        return float((await self.ask(do="close"))["seconds"])


@asynccontextmanager
async def child(entry: Entry, image: str) -> AsyncIterator[Child]:
    """A contestant, and at the end none of its containers. Raises Unavailable."""
    python = sys.executable
    if entry.rival:
        python = str(await anyio.to_thread.run_sync(python_of, entry.rival))
    command = [python, str(SERVE), entry.driver, *entry.distributions]
    process = await anyio.open_process(command, stderr=subprocess.DEVNULL)
    made = Child(entry, process)
    try:
        made.versions = (await made.ask(label=RUN_LABEL, image=image))["versions"]
        yield made
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLEAN_UP):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
            if made.made:
                command = ["docker", "rm", "-f", "-v", *made.made]
                await anyio.run_process(command, check=False)


def shortened(reason: str) -> str:
    """One line, its middle left out when it is long."""
    line = " ".join(reason.split())
    return line if len(line) <= 320 else f"{line[:120]} [...] {line[-190:]}"


async def remove_left_over() -> None:
    """Containers of this run that are still there, by their label, or swebench's name."""
    left = []
    for mark in (f"label={RUN_LABEL}", f"name=sweb.eval.bench.{RUN_LABEL.partition('=')[2]}-"):
        found = await anyio.run_process(["docker", "ps", "-aq", "--filter", mark])
        left += found.stdout.decode().split()
    if left:
        await anyio.run_process(["docker", "rm", "-f", "-v", *left], check=False)
