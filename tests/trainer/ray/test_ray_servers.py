"""vLLM servers that nodes of a real cluster declare, and policies that are opened over them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from coin_runs import PATCHGYM
from ray_nodes import RayNodes
from repair_answers import gold_source
from tiny_model import byte_tokenizer
from tokenizer_folders import write_tokenizer

from patchgym.agent import ScriptedPolicy
from patchgym.agent.policies.conformance_server import ConformanceServer
from patchgym.datasets.task import bundled_tasks, dump_tasks
from patchgym.sandbox.ray import ClusterError, connected, nodes
from patchgym.trainer.config import config_from_mapping
from patchgym.trainer.errors import ConfigError, UserError
from patchgym.trainer.policies import PolicyOptions, open_policy, parse_policy
from patchgym.trainer.ray import server_port
from patchgym.trainer.ray.servers import ray_servers

slow = pytest.mark.slow


@asynccontextmanager
async def declaring(cluster: RayNodes, servers: int) -> AsyncIterator[str]:
    """A node that says so many servers are there, for the length of the block; its address."""
    node = cluster.add({"vllm_server": servers})
    try:
        async with connected(cluster.address):
            (found,) = await nodes(("vllm_server",))
        yield found.address
    finally:
        node.kill()
        cluster.nodes.remove(node)


def test_a_port_may_be_named() -> None:
    assert server_port("vllm:ray") == 8000
    assert server_port("vllm:ray:9001") == 9001
    others = ("vllm", "vllm:raymond", "vllm:ray:", "vllm:ray:x", "vllm:ray:1:2", "vllm:ray:70000")
    assert [server_port(each) for each in others] == [None] * len(others)


def test_a_run_must_say_which_cluster() -> None:
    with pytest.raises(ConfigError, match=r"policy.use .*vllm:ray.* where ray.address is empty"):
        config_from_mapping({"policy": {"use": "vllm:ray"}}, source="x")
    settings = {"policy": {"use": "vllm:ray"}, "ray": {"address": "auto"}}
    assert config_from_mapping(settings, source="x").policy.use == "vllm:ray"
    with pytest.raises(ConfigError, match=r"policy.use"):
        config_from_mapping({**settings, "policy": {"use": "vllm:ray:no"}}, source="x")


async def test_an_evaluation_must_say_which_cluster(tmp_path: Path) -> None:
    assert parse_policy("vllm:ray:8001").where == ()
    folder = write_tokenizer(tmp_path / "tokenizer")
    with pytest.raises(UserError, match="which cluster"):
        async with open_policy("vllm:ray", PolicyOptions(tokenizer=str(folder))):
            pass


@slow
async def test_servers_are_those_that_nodes_declare(cluster: RayNodes, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no node .* declares `vllm_server`: start"):
        async with ray_servers("vllm:ray", cluster.address):
            pass
    async with declaring(cluster, 2) as address:
        async with ray_servers("vllm:ray:8100", cluster.address) as found:
            assert found == (f"http://{address}:8100", f"http://{address}:8101")


@slow
@pytest.mark.docker
async def test_a_policy_is_evaluated_by_servers_and_in_sandboxes_of_the_cluster(
    cluster: RayNodes, tmp_path: Path, docker_image: str
) -> None:
    tasks = [task for task in bundled_tasks("heldout") if task.pass_to_pass][:2]
    dump_tasks(tasks, tmp_path / "tasks.jsonl")
    gold = {task.focus.function: gold_source(task) for task in tasks if task.focus}

    def first_only(text: str, seed: int) -> str:
        name = next(name for name in gold if f"`{name}`" in text)
        assert tasks[0].focus
        right = name == tasks[0].focus.function
        return f"{gold[name]}```" if right else f"def {name}(*args):\n    return 7\n```"

    policy = ScriptedPolicy(byte_tokenizer(), first_only, version=3)
    async with (
        declaring(cluster, 1) as address,
        ConformanceServer(policy, host=address) as server,
    ):
        words = [
            *(PATCHGYM, "evaluate", "--tasks", "tasks.jsonl", "--json", "--jobs", "2"),
            *("--samples", "2", "--tokenizer", str(write_tokenizer(tmp_path / "tokenizer"))),
            *("--context-tokens", "2000", "--max-new-tokens", "300", "--ray", cluster.address),
            *("--policy", f"vllm:ray:{server.url.rpartition(':')[2]}"),
        ]
        done = await anyio.run_process(words, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr.decode()
    record = json.loads(done.stdout)
    assert record["resolved_ids"] == [tasks[0].id]
    assert record["pass_at"]["1"]["rate"] == 0.5
    assert record["policy"]["version"] == 3
    assert record["rollouts"]["known"] == 4 and record["rollouts"]["unknown"] == 0
