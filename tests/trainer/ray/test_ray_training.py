"""Training over a real cluster, in the simulated world: losses of nodes, and nothing else lost."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from ray_nodes import RayNode, RayNodes

from patchgym.trainer.config import RunConfig, config_from_mapping
from patchgym.trainer.ray.simulated import (
    AGENT,
    DOMAIN,
    simulate_on_ray,
    simulated_domain,
    world_of,
)
from patchgym.trainer.simulation import open_simulated, simulate

pytestmark = pytest.mark.slow
WORLD = {
    "turns": 3,
    "generation": "uniform:0.01,0.03",
    "reset": "const:0.01",
    "step": "uniform:0.02,0.1",
    "reward": "const:0.01",
    "learns": False,
    "tasks": 50,
}


def configured(address: str, world: dict[str, object], **changes: dict[str, object]) -> RunConfig:
    """A run in a simulated world."""
    settings: dict[str, dict[str, object]] = {
        "run": {"steps": 6},
        "environment": {"use": DOMAIN, "settings": world},
        "agent": {"scaffold": AGENT},
        "group": {"size": 4, "per_step": 2, "max_staleness": 0},
        "rollout": {"in_flight": 8, "max_turns": 4, "max_new_tokens": 24, "context_tokens": 512},
        "scoring": {"workers": 8},
        "evaluation": {"samples": 0},
        "ray": {"address": address, "silence": 60.0},  # a busy machine is no failure
    }
    for name, values in changes.items():
        settings[name] = {**settings.get(name, {}), **values}
    return config_from_mapping(settings, source="the test")


async def test_results_are_those_of_a_run_on_one_machine(cluster: RayNodes, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    config = configured(cluster.address, WORLD)
    there = await simulate_on_ray(config, tmp_path / "there")
    world = world_of(WORLD)
    resources = open_simulated(config, world)
    resources.domain = simulated_domain(WORLD)
    here = await simulate(config, world, tmp_path / "here", resources)
    for name in ("id", "task_id", "reward", "stop_reason", "turns", "sampled_tokens"):
        if name in here.rollouts[0]:
            assert _by_id(there.rollouts, name) == _by_id(here.rollouts, name), name
    assert [(g["id"], g["state"], g["step"]) for g in there.groups] == [
        (g["id"], g["state"], g["step"]) for g in here.groups
    ]
    rewards = [step["reward"] for step in here.steps]  # means: of members as they come back
    assert [step["reward"] for step in there.steps] == pytest.approx(rewards, abs=1e-12)


async def test_a_node_that_dies_costs_no_group(cluster: RayNodes, tmp_path: Path) -> None:
    config = configured(
        cluster.address,
        {**WORLD, "step": "uniform:0.2,0.6"},
        run={"steps": 12},
        group={"max_staleness": 1},
        rollout={"in_flight": 16, "retries": 3},
    )
    killer = threading.Thread(target=kill_when_it_trains, args=(cluster, tmp_path / "run.sqlite"))
    killer.start()
    run = await simulate_on_ray(config, tmp_path)
    killer.join()
    reasons = Counter(row["stop_reason"] for row in run.rollouts)
    assert reasons["host_lost"] > 0
    errors = [row["error"] for row in run.rollouts if row["stop_reason"] == "host_lost"]
    assert all("host " in error for error in errors)
    assert len(run.steps) == 12
    # A retry may come too late for its weights: that task comes first the next time.
    assert {row["reason"] for row in run.groups if row["state"] == "dropped"} <= {"stale"}
    whole = Counter(row["group_id"] for row in run.rollouts if row["stop_reason"] == "solved")
    trained = [row["id"] for row in run.groups if row["state"] == "committed"]
    assert len(trained) >= 24 and all(whole[group] == 4 for group in trained)


async def test_a_slow_node_is_no_lost_node(cluster: RayNodes, tmp_path: Path) -> None:
    config = configured(
        cluster.address,
        WORLD,
        group={"max_staleness": 1},
        rollout={"in_flight": 16},
    )
    over = threading.Event()
    brake = threading.Thread(target=slow_down, args=(cluster.nodes[-1], over))
    brake.start()
    try:
        run = await simulate_on_ray(config, tmp_path)
    finally:
        over.set()
        brake.join()
    assert len(run.steps) == 6
    assert {row["stop_reason"] for row in run.rollouts} <= {"solved", "straggler"}
    assert {row["reason"] for row in run.groups if row["state"] == "dropped"} <= {"stale"}


def test_a_world_says_what_it_does_not_have() -> None:
    with pytest.raises(Exception, match="environment.settings.wings: a simulated world"):
        simulated_domain({"wings": 2})


def slow_down(node: RayNode, over: threading.Event) -> None:
    """Let a node run for a fifth of the time."""
    while not over.is_set():
        node.signal(signal.SIGSTOP)
        time.sleep(0.2)
        node.signal(signal.SIGCONT)
        time.sleep(0.05)


def kill_when_it_trains(cluster: RayNodes, ledger: Path) -> None:
    """Take a node away once rollouts have come back, and give another."""
    while rollouts_in(ledger) < 8:
        time.sleep(0.05)
    cluster.nodes[-1].kill()
    cluster.add()


def rollouts_in(ledger: Path) -> int:
    """How many are on record."""
    if not ledger.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as reader:
        try:
            return int(reader.execute("SELECT count(*) FROM rollouts").fetchone()[0])
        except sqlite3.OperationalError:  # not laid out yet
            return 0


def _by_id(rows: tuple[dict[str, object], ...], name: str) -> dict[object, object]:
    return {row["id"]: row[name] for row in rows}
