"""What Ray costs, and what it survives: three nodes on this machine, each with a pool of its own.

    python benchmarks/bench_ray.py [overhead] [control] [kills] [--minutes N] [--write]

overhead   commands in a leased sandbox, and rollouts of the bundled repair tasks on as many slots,
           over Ray beside the local pool: rounds of the two take turns in one run
control    2,000 slots over 20 simulated hosts: rollouts of two turns through placement, orders,
           turns, stages and rewards, with no container and no ledger
kills      training in the simulated world while a node is killed, and another started, every 30 s

`--write` puts the result in `benchmarks/ray.md`. The last line is `RESULT ` and one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import anyio
from ray_nodes import RayNodes, ray_nodes

from patchgym.agent import CharacterTokenizer, RolloutLimits, ScriptedPolicy, Trajectory
from patchgym.datasets.task import Task, bundled_tasks, dump_tasks
from patchgym.rewards import Reward
from patchgym.sandbox import Pool, Sandbox, SandboxSpec, ensure_base
from patchgym.sandbox.ray import RayPool
from patchgym.trainer.admission import Admission
from patchgym.trainer.agents import make_agents
from patchgym.trainer.config import RunConfig, ScoringSection, config_from_mapping
from patchgym.trainer.group import WorkItem
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.pipeline import Pipeline, PipelineParts, Rollouts
from patchgym.trainer.progress import Progress
from patchgym.trainer.ray.domain import RayRollouts, open_ray
from patchgym.trainer.ray.simulated import AGENT, DOMAIN, simulate_on_ray, world_of
from patchgym.trainer.repositories import open_repositories
from patchgym.trainer.simulation import SimulatedPolicy
from patchgym.trainer.sources import ListSource

PAGE = Path(__file__).with_name("ray.md")
LIMITS = RolloutLimits(max_turns=2, max_new_tokens=400, context_tokens=4000)
SLOTS, ROUNDS, TASKS = 6, 4, 8
EVERY = 30.0  # seconds between two deaths


async def commands(sandboxes: dict[str, Sandbox], rounds: int = 300) -> dict[str, list[float]]:
    """Milliseconds of `true`, one after the other, the two paths taking turns."""
    found: dict[str, list[float]] = {name: [] for name in sandboxes}
    for _ in range(rounds):
        for name, sandbox in sandboxes.items():
            started = time.perf_counter()
            await sandbox.run(["true"], timeout=10)
            found[name].append(1e3 * (time.perf_counter() - started))
    return found


async def measure_commands(address: str) -> dict[str, float]:
    """Added milliseconds of a command, by quantile."""
    spec = SandboxSpec(image=await ensure_base())
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(Pool(spec, size=1))
        remote = await stack.enter_async_context(RayPool(spec, size=1, address=address, hosts=1))
        sandboxes = {
            "local": await stack.enter_async_context(local.lease(timeout=60)),
            "ray": await stack.enter_async_context(remote.lease(timeout=60)),
        }
        await commands(sandboxes, 50)
        found = await commands(sandboxes)
    cuts = {name: statistics.quantiles(values, n=20) for name, values in found.items()}
    return {
        "command_local_ms_p50": cuts["local"][9],
        "command_ray_ms_p50": cuts["ray"][9],
        "command_added_ms_p50": cuts["ray"][9] - cuts["local"][9],
        "command_added_ms_p95": cuts["ray"][18] - cuts["local"][18],
    }


def scripted(tasks: tuple[Task, ...]) -> ScriptedPolicy:
    """Half of its answers are right, half end in a second turn."""
    names = [task.focus.function for task in tasks if task.focus]

    def answer(text: str, seed: int) -> str:
        name = next(name for name in names if f"`{name}`" in text)
        return f"def {name}(*args):\n    return {seed % 3}\n```"

    return ScriptedPolicy(CharacterTokenizer(), answer)


async def roll_out(
    config: RunConfig, domain: Any, policy: Any, rollouts: Rollouts | None, *, samples: int
) -> float:
    """Rollouts a second."""
    done = 0

    async def deliver(item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        nonlocal done
        assert trajectory.stop_reason in ("solved", "submitted"), trajectory.error
        done += 1

    parts = PipelineParts(
        policy=policy,
        agents=make_agents(config, CharacterTokenizer()),
        domain=domain,
        board=StageBoard(),
        admission=Admission(config.rollout.in_flight),
        rollouts=rollouts,
    )
    scoring = ScoringSection(workers=config.scoring.workers, queue=config.scoring.queue)
    source = ListSource("x", domain.train, samples=samples, seed=0)
    started = time.perf_counter()
    await Pipeline(parts, limits=LIMITS, scoring=scoring).run(
        source, deliver, slots=config.rollout.in_flight
    )
    return done / (time.perf_counter() - started)


async def on_ray(config: RunConfig, policy: Any, stack: AsyncExitStack) -> RayRollouts:
    """The cluster's hosts, ready."""
    domain = await open_ray(config, Progress(), stack)
    rollouts = RayRollouts(domain=domain, policy=policy)
    await rollouts.equip(CharacterTokenizer())
    return rollouts


async def measure_rollouts(address: str, folder: Path) -> dict[str, Any]:
    """Throughput over Ray by that of the local pool, the same slots, rounds taking turns."""
    tasks = bundled_tasks("train")[:TASKS]
    dump_tasks(tasks, folder / "train.jsonl")
    dump_tasks(bundled_tasks("heldout")[:1], folder / "heldout.jsonl")
    settings = {
        "tasks": {"train": f"{folder}/train.jsonl", "heldout": f"{folder}/heldout.jsonl"},
        "sandbox": {"slots": SLOTS},
        "rollout": {"in_flight": SLOTS},
        "scoring": {"workers": 3, "cache": "", "reruns": 0},
    }
    here = config_from_mapping(settings, source="the benchmark")
    there = config_from_mapping(settings | {"ray": {"address": address}}, source="the benchmark")
    policy = scripted(tasks)
    rates: dict[str, list[float]] = {"local": [], "ray": []}
    async with AsyncExitStack() as stack:
        local = await open_repositories(here, Progress(), stack)
        remote = await on_ray(there, policy, stack)
        for number in range(ROUNDS + 1):
            for name in ("local", "ray") if number % 2 else ("ray", "local"):
                rollouts = remote if name == "ray" else None
                domain = remote.domain if name == "ray" else local
                rate = await roll_out(here, domain, policy, rollouts, samples=3)
                if number:  # the first warms up
                    rates[name].append(rate)
                print(f"  {name:5} {rate:6.2f} rollouts/s", flush=True)
    ratios = [ray / local for ray, local in zip(rates["ray"], rates["local"], strict=True)]
    return {
        "throughput_vs_local": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "rollouts_per_second_local": statistics.median(rates["local"]),
    }


def simulated(address: str, world: dict[str, Any], **sections: dict[str, Any]) -> RunConfig:
    """A run in a simulated world on a cluster."""
    settings: dict[str, Any] = {
        "environment": {"use": DOMAIN, "settings": world},
        "agent": {"scaffold": AGENT},
        "evaluation": {"samples": 0},
        "ray": {"address": address},
    }
    for name, values in sections.items():
        settings[name] = {**settings.get(name, {}), **values}
    return config_from_mapping(settings, source="the benchmark")


async def measure_control(address: str, hosts: int, slots: int) -> dict[str, Any]:
    """Rollouts a second through everything but containers and ledger."""
    world = {
        "turns": 2,
        "generation": "uniform:0.5,1.5",
        "reset": "const:0.5",
        "step": "uniform:0.5,1.5",
        "reward": "const:0.1",
        "tasks": 2000,
    }
    config = simulated(
        address,
        world,
        rollout={"in_flight": slots, "max_turns": 4},
        scoring={"workers": 256, "queue": 512},
        ray={"per_node": hosts // 2, "hosts": 2, "reward_hosts": 1},
    )
    policy = SimulatedPolicy(world_of(world))
    async with AsyncExitStack() as stack:
        rollouts = await on_ray(config, policy, stack)
        rates = [
            await roll_out(config, rollouts.domain, policy, rollouts, samples=samples)
            for samples in (2, 4, 4)
        ]
    print(f"  {', '.join(f'{rate:.0f}' for rate in rates)} rollouts/s", flush=True)
    return {
        "control_hosts": hosts,
        "control_slots": slots,
        "control_rollouts_per_second": statistics.median(rates[1:]),
        "control_ideal": slots / 4.6,
    }


class Killer(threading.Thread):
    """Takes the oldest node away every `EVERY` seconds, and gives another."""

    def __init__(self, cluster: RayNodes) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._over = threading.Event()
        self.killed = 0

    def run(self) -> None:
        """Until `stop`."""
        starting: list[threading.Thread] = []
        while not self._over.wait(EVERY):
            if len(self._cluster.nodes) < 2:
                continue  # the last to die have no successors yet
            self._cluster.nodes[1].kill()
            del self._cluster.nodes[1]
            self.killed += 1
            starting.append(threading.Thread(target=self._cluster.add))
            starting[-1].start()
        for each in starting:
            each.join()

    def stop(self) -> None:
        """No more deaths."""
        self._over.set()
        self.join()


async def measure_kills(cluster: RayNodes, minutes: float, folder: Path) -> dict[str, Any]:
    """What became of the groups of a training whose nodes die."""
    world = {
        "turns": 3,
        "generation": "uniform:0.3,0.6",
        "reset": "const:0.3",
        "step": "lognormal:0.5,0.6",
        "reward": "const:0.1",
        "learns": False,
    }
    # Six seconds a rollout, three groups of eight a step on 24 slots: about seven seconds a step.
    config = simulated(
        cluster.address,
        world,
        run={"steps": max(int(minutes * 60 / 4.5), 2)},
        group={"size": 8, "per_step": 3, "max_staleness": 1},
        rollout={"in_flight": 24, "max_turns": 4, "max_new_tokens": 24, "retries": 4},
        scoring={"workers": 8},
        ray={"silence": 5.0},
    )
    killer = Killer(cluster)
    killer.start()
    started = time.monotonic()
    try:
        run = await simulate_on_ray(config, folder)
    finally:
        killer.stop()
    reasons = Counter(row["stop_reason"] for row in run.rollouts)
    dropped = Counter(row["reason"] for row in run.groups if row["state"] == "dropped")
    print(f"  {killer.killed} nodes killed; {dict(reasons)}; dropped groups: {dict(dropped)}")
    return {
        "kills": killer.killed,
        "minutes": (time.monotonic() - started) / 60,
        "groups_trained": sum(row["state"] == "committed" for row in run.groups),
        "groups_lost": dropped["too_few"],
        "groups_too_late": dropped["stale"],
        "rollouts": len(run.rollouts),
        "rollouts_lost_with_a_node": reasons["host_lost"],
    }


def main() -> None:
    """Measure what is asked for, or everything."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("parts", nargs="*", help="overhead, control, kills; all without any")
    arguments.add_argument("--minutes", type=float, default=10.0, help="of kills")
    arguments.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = arguments.parse_args()
    parts = given.parts or ["overhead", "control", "kills"]
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, ray_nodes(3) as cluster:
        for part in parts:
            print(f"{part}:", flush=True)
            folder = Path(scratch) / part
            folder.mkdir()
            if part == "overhead":
                result |= anyio.run(measure_commands, cluster.address)
                result |= anyio.run(measure_rollouts, cluster.address, folder)
            elif part == "control":
                result |= anyio.run(measure_control, cluster.address, 20, 2000)
            elif part == "kills":
                result |= anyio.run(measure_kills, cluster, given.minutes, folder)
            else:
                arguments.error(f"no part {part!r}")
    result["versions"] = {name: version(name) for name in ("patchgym", "ray")}
    if given.write:
        PAGE.write_text(page(result))
    print("RESULT " + json.dumps({k: _round(v) for k, v in result.items()}))


def page(result: dict[str, Any]) -> str:
    """For people."""
    load = os.getloadavg()[0]
    lines = [
        "# Ray, measured",
        "",
        f"`make bench-ray`, {date.today()}, Python {platform.python_version()}, "
        f"ray {result['versions']['ray']}, {os.cpu_count()} processors for everything: driver, "
        f"head, three nodes and their containers. Load at the end: {load:.1f}.",
        "",
        "| | |",
        "|---|---|",
        *(
            f"| {name} | {json.dumps(_round(value))} |"
            for name, value in result.items()
            if name != "versions"
        ),
        "",
        "What each of these is, and what it leaves out: the head of "
        "[bench_ray.py](bench_ray.py). `control_ideal` is what as many slots would do if nothing "
        "but the simulated seconds passed.",
        "",
    ]
    return "\n".join(lines)


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return [_round(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
