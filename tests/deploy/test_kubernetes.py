"""The Kubernetes files against the API's own schemas, and what they must not allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from deploy_files import containers, documents, pods

VERSIONS = ("1.29", "1.33", "1.37")
"""Of Kubernetes: a container that starts before the others and stays is there since 1.29."""


def kubernetes_files(root: Path) -> list[Path]:
    found = [*(root / "deploy/kubernetes").glob("*.yaml"), root / "deploy/ray/gke.yaml"]
    assert len(found) == 6
    return found


def resources(root: Path) -> list[dict[str, Any]]:
    return [each for path in kubernetes_files(root) for each in documents(path)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_knows_every_key(root: Path, version: str) -> None:
    checked = 0
    for document in resources(root):
        if document["kind"] != "RayCluster":
            kubernetes_validate.validate(document, version, strict=True)
            checked += 1
    assert checked == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_knows_every_key_of_the_pods_that_kuberay_starts(root: Path, version: str) -> None:
    (cluster,) = (each for each in resources(root) if each["kind"] == "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        about = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}}
        kubernetes_validate.validate({**about, "template": group["template"]}, version, strict=True)
    assert len(groups) == 3


def test_a_key_that_the_api_has_not_is_refused(root: Path) -> None:
    (job,) = (each for each in resources(root) if each["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["privileged"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="privileged"):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def test_only_docker_is_privileged_and_listens_on_its_socket_alone(root: Path) -> None:
    privileged = []
    for document in resources(root):
        for pod in pods(document):
            assert pod["automountServiceAccountToken"] is False
            assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
            assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
            for each in containers(pod):
                security = {**pod["securityContext"], **each["securityContext"]}
                if security.get("privileged"):
                    privileged.append(each)
                    assert pod["nodeSelector"] == {"patchgym/sandboxes": "true"}
                else:
                    assert security["runAsNonRoot"] is True
                    assert security["allowPrivilegeEscalation"] is False
                    assert security["capabilities"] == {"drop": ["ALL"]}
    assert [each["name"] for each in privileged] == ["docker", "docker"]
    for each in privileged:
        hosts = [word for word in each["args"] if "host" in word]
        assert hosts == ["--host=unix:///run/patchgym/docker.sock"]


def test_every_pod_is_of_the_part_that_the_network_policy_lets_talk(root: Path) -> None:
    (policy,) = (each for each in resources(root) if each["kind"] == "NetworkPolicy")
    (peer,) = policy["spec"]["ingress"][0]["from"]
    wanted = peer["podSelector"]["matchLabels"].items()
    templates = [each for document in resources(root) for each in _templates(document)]
    assert len(templates) == 6
    for template in templates:
        assert wanted <= template["metadata"]["labels"].items()
    assert policy["spec"]["podSelector"] == {}
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_names_that_refer_to_something_refer_to_what_is_there(root: Path) -> None:
    for path in kubernetes_files(root):
        for document in documents(path):
            for pod in pods(document):
                claims = document.get("spec", {}).get("volumeClaimTemplates", ())
                volumes = {each["name"] for each in pod.get("volumes", ())}
                volumes |= {each["metadata"]["name"] for each in claims}
                mounts = [m["name"] for c in containers(pod) for m in c.get("volumeMounts", ())]
                assert set(mounts) == volumes
    services = {each["metadata"]["name"] for each in resources(root) if each["kind"] == "Service"}
    (hosts,) = (each for each in resources(root) if each["kind"] == "StatefulSet")
    assert hosts["spec"]["serviceName"] in services
    assert "ray-head" in services


def _templates(found: object) -> list[dict[str, Any]]:
    """What pods are made from: a specification with containers, and the labels beside it."""
    if isinstance(found, list):
        return [each for value in found for each in _templates(value)]
    if not isinstance(found, dict):
        return []
    here = [found] if "containers" in (found.get("spec") or ()) else []
    return [*here, *(each for value in found.values() for each in _templates(value))]
