"""The files for Ray by Ray's own readers: cluster launcher, KubeRay's autoscaler, command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from deploy_files import command_lines, documents


def launched(root: Path) -> dict[str, Any]:
    (found,) = documents(root / "deploy/ray/vms.yaml")
    return found


def cluster(root: Path) -> dict[str, Any]:
    (found,) = (d for d in documents(root / "deploy/ray/gke.yaml") if d["kind"] == "RayCluster")
    return found


def test_the_cluster_launcher_takes_the_file_for_machines(root: Path) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(launched(root))
    validate_config(whole)
    (kind,) = whole["available_node_types"].values()
    assert kind["max_workers"] == len(whole["provider"]["worker_ips"])


def test_the_cluster_launcher_refuses_what_it_does_not_know(root: Path) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(jsonschema.ValidationError, match="workers_start_ray_commands"):
        validate_config({**prepare_config(launched(root)), "workers_start_ray_commands": []})


def test_ray_reads_its_resources_from_kuberays_file(root: Path) -> None:
    from ray.autoscaler._private.kuberay import autoscaling_config

    read = autoscaling_config._derive_autoscaling_config_from_ray_cr(cluster(root))
    kinds = {name: kind["resources"] for name, kind in read["available_node_types"].items()}
    assert set(kinds) == {"headgroup", "learner", "sandbox-hosts"}
    assert kinds["headgroup"]["CPU"] == 0
    assert kinds["learner"]["TPU"] == 4
    assert kinds["learner"]["TPU-v5litepod-16-head"] == 1
    assert read["available_node_types"]["learner"]["min_workers"] == 4
    assert kinds["sandbox-hosts"]["sandbox_host"] == 1
    assert kinds["sandbox-hosts"]["reward_host"] == 1


def test_kuberay_knows_every_key_above_the_pods(root: Path) -> None:
    """By hand, once, the whole file was checked against KubeRay's own definition; these are its
    names, as far as the file uses them."""
    spec = cluster(root)["spec"]
    group = {"template", "rayStartParams"}
    assert spec.keys() == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"].keys() == group
    sizes = {"groupName", "replicas", "minReplicas", "maxReplicas"}
    learner, hosts = spec["workerGroupSpecs"]
    assert learner.keys() == group | sizes | {"numOfHosts"}
    assert hosts.keys() == group | sizes
    for each in (spec["headGroupSpec"], learner, hosts):
        assert all(isinstance(value, str) for value in each["rayStartParams"].values())


def test_every_call_of_ray_is_one_that_ray_takes(root: Path) -> None:
    from ray.scripts.scripts import cli

    calls = [
        words
        for path in sorted((root / "deploy").rglob("*.yaml"))
        for words in command_lines(path)
        if words[0] == "ray"
    ]
    calls += [
        ["ray", words[1], *_flags(words[2])]
        for group in (cluster(root)["spec"]["headGroupSpec"], *_groups(root))
        for words in [("ray", "start", group["rayStartParams"])]
    ]
    assert len(calls) == 10
    for _, name, *words in calls:
        cli.commands[name].make_context(name, words)


def test_nodes_run_the_ray_that_the_extra_installs(root: Path) -> None:
    import ray

    assert cluster(root)["spec"]["rayVersion"] == ray.__version__


def test_one_version_of_patchgym_is_in_all_files(root: Path) -> None:
    from importlib.metadata import version

    texts = [path.read_text() for path in sorted((root / "deploy").rglob("*")) if path.is_file()]
    found = re.findall(r"(?:patchgym:|patchgym\[[a-z,]+\]==)([0-9.]+[0-9])", "\n".join(texts))
    assert len(found) > 5
    assert set(found) == {version("patchgym")}


def _groups(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster(root)["spec"]["workerGroupSpecs"]
    return found


def _flags(parameters: dict[str, str]) -> list[str]:
    """As KubeRay puts them on the command line; a shell takes one pair of quotes off."""
    return [
        f"--{name}" if value == "true" else f"--{name}={_unquoted(value)}"
        for name, value in parameters.items()
    ]


def _unquoted(value: str) -> str:
    return value[1:-1].replace('\\"', '"') if value.startswith('"') else value
