"""What a training asks is shot, or its connections are reset: servers, reward workers, Docker.

`make chaos` shoots more often; the ordinary tests take a short run of it.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from chaos_runs import NAME, ChaosRun, wait
from chaos_sandboxes import SANDBOXED
from coin_servers import CoinServer
from docker_hosts import own_daemon
from unsteady import tcp_door, unix_door

pytestmark = pytest.mark.slow
ROUNDS = 8 if "PATCHGYM_CHAOS_KILLS" in os.environ else 1
TYPED = {"solved", "submitted", "straggler"}

MEASURED = """
from pathlib import Path
from patchgym.datasets.task import bundled_tasks
from patchgym.rewards import Change, Part, Scene, Verdict
from patchgym.rewards.measuring import Measurer
from patchgym.rewards.registry import make_component

class MeasuredCoins(Coins):
    def __init__(self, settings):
        super().__init__(settings)
        options = {"mark": settings["mark"]}
        self.measurer, source = Measurer(2), settings["component"]
        self.part = Part(name="coin", component=make_component(source, options), source=source,
                         options=options, weight=1.0, deadline=60.0)

    async def score(self, task, trajectory):
        coin = sum(turn.completion.tokens[0] for turn in trajectory.turns) % 2
        scene = Scene(task=bundled_tasks("train")[0], diff=str(coin).encode(),
                      change=Change(tree="1" * 40), gold=Change(tree="2" * 40),
                      verdict=Verdict(status="resolved", evidence="report"), conduct=None)
        score = await self.measurer.measure(self.part, scene)
        if score.value is None:
            raise RuntimeError(score.detail)
        return Reward.of_answer(score.value, resolved=score.value > 0.5)
"""
COMPONENT = """
import os, time
from dataclasses import dataclass
from patchgym.rewards import Component, Measurement

@dataclass(frozen=True, kw_only=True)
class Coin(Component):
    mark: str

    def measure(self, scene):
        with open(self.mark, "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(0.05)
        return Measurement(value=float(scene.diff))
"""


def measured(run: ChaosRun, changes: dict[str, dict[str, Any]]) -> Path:
    """A run whose rewards are measured in processes; the file in which these leave their ids."""
    mark = run.folder / "workers"
    mark.touch()
    (run.folder / "measured.py").write_text(COMPONENT)
    component = f"{run.folder / 'measured.py'}:Coin"
    settings = {"top": 9, "component": component, "mark": str(mark)}
    environment = {"use": "coins.py:MeasuredCoins", "settings": settings}
    run.prepare({**changes, "environment": environment})
    run.add(MEASURED)
    return mark


def shoot_worker(mark: Path) -> None:
    """Kill the process that measured last."""
    workers = mark.read_text().split()
    if workers:
        with suppress(ProcessLookupError):  # it has ended since
            os.kill(int(workers[-1]), signal.SIGKILL)


def end(run: ChaosRun, process: Any) -> dict[str, Any]:
    """Ask it to end; what the checker says then."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130, run.log.read_text()
    return run.check()


def test_servers_and_reward_workers_are_shot_and_connections_reset(run: ChaosRun) -> None:
    with ExitStack() as stack:
        servers = [CoinServer(run.folder / f"port{n}") for n in range(2)]
        for server in servers:
            stack.callback(server.kill)
        doors = [stack.enter_context(tcp_door(server.port)) for server in servers]
        urls = ",".join(f"http://127.0.0.1:{port}" for port, _ in doors)
        mark = measured(run, {"policy": {"use": f"vllm:{urls}"}, "rollout": {"in_flight": 16}})
        process = stack.enter_context(run.training())
        run.until(process, lambda: run.steps_made() > 1)
        broken = 0
        for _ in range(ROUNDS):
            servers[0].kill()
            run.go_on(process, 3)
            servers[0].start()
            run.go_on(process, 2)
            shoot_worker(mark)
            run.go_on(process, 2)
            broken += sum(door.reset() for _, door in doors)
            run.go_on(process, 3)
        report = end(run, process)
    assert report["broken"] == 0 and broken > 0
    outcomes = run.summary()["outcomes"]
    assert set(outcomes) <= TYPED | {"policy_failed", "scoring_failed"}, outcomes
    assert outcomes["submitted"] + outcomes.get("solved", 0) > 10 * ROUNDS, outcomes


@pytest.mark.docker
@pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it")
def test_connections_to_docker_are_reset_and_nothing_is_left(
    run: ChaosRun, docker_image: str
) -> None:
    chance = random.Random(7)
    # A short path: a unix socket's may have 104 characters.
    with TemporaryDirectory(prefix="d") as place, own_daemon(Path(place), docker_image) as daemon:
        settings = {"settings": {"top": 9, "image": docker_image}}
        run.prepare(
            {
                "environment": {"use": "coins.py:SandboxCoins", **settings},
                "rollout": {"in_flight": 8},
                "failures": {"sandbox": 1.0, "environment": 1.0},
                "tasks": {"quarantine": 0},
            }
        )
        arithmetic = str(run.root / "examples" / "arithmetic.py")
        (run.folder / "coins.py").write_text(SANDBOXED.format(arithmetic=arithmetic))
        run.environment["DOCKER_HOST"] = f"unix://{place}/door.sock"
        before, broken = daemon.inventory(), 0
        with unix_door(Path(place, "door.sock"), f"{place}/docker.sock") as door:
            with run.training() as process:
                run.until(process, lambda: run.steps_made() > 0)
                for _ in range(ROUNDS):
                    wait(chance.uniform(0.0, 0.5))
                    broken += door.reset()
                    run.go_on(process, 2)
                report = end(run, process)
        assert report["broken"] == 0 and broken > 0
        assert daemon.inventory() == before
        outcomes = run.summary()["outcomes"]
        assert set(outcomes) <= TYPED | {"sandbox_failed", "environment_failed"}, outcomes
        assert NAME in run.command("runs", "ls").stdout
