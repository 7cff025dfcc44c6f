"""Runs on disk for the dashboard, written by the real ledger; and a real server over them."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from patchgym.agent import Completion, StopReason, Trajectory, Turn
from patchgym.rewards import Reward
from patchgym.trainer.config import RunConfig, config_to_toml
from patchgym.trainer.dashboard.app import create_app
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.run_folder import RunFolder

Change = Callable[[Ledger], None]


def new_run(root: Path, name: str, *, steps: int = 4, seed: int = 0) -> RunFolder:
    """The folder of a run that has not begun."""
    folder = RunFolder(root / name)
    folder.trajectories.mkdir(parents=True)
    config = RunConfig()
    config = replace(config, run=replace(config.run, name=name, steps=steps, seed=seed))
    folder.config.write_text(config_to_toml(config))
    return folder


def write(folder: RunFolder, *changes: Change) -> None:
    """Record what `changes` record. In a thread of its own: a browser's test has a loop running."""

    async def recording() -> None:
        async with Ledger(folder.ledger) as ledger:
            for change in changes:
                change(ledger)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, recording).result()


def state(word: str, seconds: float = 0.0) -> Change:
    """The run's state."""

    def change(ledger: Ledger) -> None:
        ledger.meta("state", word)
        ledger.meta("seconds", seconds)

    return change


def step(number: int, reward: float | None = 0.5, **more: object) -> Change:
    """A finished step."""
    metrics: dict[str, object] = {
        "reward": reward,
        "pass_rate": reward,
        "rollouts": 4,
        "rollout_p50": 1.0,
        "sampled_tokens": 40,
        "loss": 0.25,
        "staleness": {"0": 2, "1": 2},
        "clock_seconds": 10.0 * (number + 1),
        "waited_seconds": {"sampling": 2.0 * (number + 1)},
    }
    return lambda ledger: ledger.step(number, {**metrics, **more})


def rollouts(
    group: str,
    task: str = "sum/1+1",
    *,
    solved: int = 1,
    size: int = 2,
    purpose: str = "train",
    stop: StopReason = "submitted",
) -> Change:
    """A group of finished rollouts, the first `solved` of them resolved."""

    def change(ledger: Ledger) -> None:
        if purpose == "train":
            ledger.group(group, task, int(group[1:]), "pending")
        for member in range(size):
            good = member < solved
            ledger.rollout(
                purpose, group, task, member, _trajectory(f"{group}-m{member}", task, stop),
                Reward.of_answer(float(good), resolved=good),
            )  # fmt: skip
        if purpose == "train":
            names = [f"{group}-m{member}" for member in range(size)]
            ledger.group(group, task, int(group[1:]), "ready", members=names)

    return change


def _trajectory(name: str, task: str, stop: StopReason) -> Trajectory:
    completion = Completion(tokens=(5, 6), logprobs=(-0.5, -0.5), policy_version=0, finish="eos")
    turn = Turn(
        context=(1, 2, 3), completion=completion, text="two", calls=(), observations=(),
        sample_seconds=0.5, tool_seconds=0.0,
    )  # fmt: skip
    return Trajectory(
        rollout_id=name, task_id=task, seed=0, turns=(turn,), stop_reason=stop, seconds=1.0
    )


def event(kind: str, **detail: object) -> Change:
    """Something that happened."""
    return lambda ledger: ledger.event(kind, **detail)


def meta(key: str, value: object) -> Change:
    """A named value."""
    return lambda ledger: ledger.meta(key, value)


def finished(root: Path, name: str = "done", *, steps: int = 3, seed: int = 0) -> RunFolder:
    """A small run that finished."""
    folder = new_run(root, name, steps=steps, seed=seed)
    rate = {"pass_rate": 0.5, "interval": [0.2, 0.8], "samples": 4, "effective_samples": 4.0}
    idle = {
        "seconds": 10.0 * steps,
        "idle_share": 0.2,
        "idle_reasons": {"sampling": 0.2},
        "busy": {"training": 8.0 * steps},
    }
    write(
        folder,
        *(rollouts(f"g{number:05d}") for number in range(steps)),
        *(step(number, reward=0.25 * (number + 1)) for number in range(steps)),
        meta("idle", idle),
        meta("evaluation.before", rate),
        meta("evaluation.after", {**rate, "pass_rate": 0.75}),
        state("finished", 10.0 * steps),
    )
    return folder


def set_version(folder: RunFolder, version: int) -> None:
    """Have a ledger claim another version."""
    with closing(sqlite3.connect(folder.ledger)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def client_of(root: Path, token: str = "", **more: Any) -> TestClient:
    """A client of the pages over `root`, in this process."""
    return TestClient(create_app(root, token), base_url="http://127.0.0.1:8642", **more)


def found(client: TestClient, path: str, **query: Any) -> Mapping[str, Any]:
    """A JSON answer."""
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    content: Mapping[str, Any] = json.loads(answer.text)
    return content


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """A real server over `app`; its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
