"""What the sandbox layer tells of real containers, to an SDK of the caller's own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.docker

CODE = """
import json, sys
from pathlib import Path

import anyio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from patchgym.sandbox import LeaseTimeout, Pool, SandboxLost, SandboxSpec
from patchgym.sandbox.testing import run_tests

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))
image, repository, commit = sys.argv[1:]
test = "import os, pathlib\\ndef test_flaky():\\n    p = pathlib.Path('/dev/shm/seen')\\n" \\
    "    seen = p.exists(); p.touch(); assert seen\\ndef test_fine(): pass\\n"

async def main():
    async with Pool(SandboxSpec(image=image), size=1) as pool:
        with provider.get_tracer("caller").start_as_current_span("mine"):
            async with pool.lease(timeout=60, borrower="me") as sandbox:
                await sandbox.checkout(Path(repository), commit)
                result = await sandbox.run("exit 3", timeout=10)
                try:
                    async with pool.lease(timeout=0):
                        pass
                except LeaseTimeout:
                    pass
                await sandbox.write("test_it.py", test.encode())
                report = await run_tests(
                    sandbox, test_ids=["test_it.py::test_flaky", "test_it.py::test_fine"],
                    timeout=30, reruns=1)
                slots = collected()["patchgym.sandbox.slots"]
        return dict(report.outcomes), slots

def collected():
    data = reader.get_metrics_data()
    return {
        metric.name: [
            [dict(point.attributes), getattr(point, "value", None) or getattr(point, "count", None)]
            for point in metric.data.data_points
        ]
        for resource in data.resource_metrics for scope in resource.scope_metrics
        for metric in scope.metrics
    }

outcomes, slots = anyio.run(main)
told = [
    {
        "name": span.name,
        "id": span.context.span_id,
        "parent": span.parent.span_id if span.parent else None,
        "attributes": dict(span.attributes),
        "status": span.status.status_code.name,
    }
    for span in spans.get_finished_spans()
]
print(json.dumps({"spans": told, "metrics": collected(), "slots": slots, "outcomes": outcomes}))
"""


@pytest.fixture(scope="module")
def told(docker_image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A lease with a checkout, a command, a refused lease, and tests with a rerun."""
    repository = tmp_path_factory.mktemp("repository")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "file.py").write_text("x = 1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    command = [sys.executable, "-c", CODE, docker_image, str(repository), commit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def named(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span for span in told["spans"] if span["name"] == name]


def test_what_is_done_in_a_lease_is_part_of_the_callers_span(told: dict[str, Any]) -> None:
    [mine] = named(told, "mine")
    [lease] = named(told, "lease")
    [checkout] = named(told, "checkout")
    [tests] = named(told, "run tests")
    granted, refused = named(told, "lease wait")
    parts = (lease, checkout, tests, granted, refused)
    assert {span["parent"] for span in parts} == {mine["id"]}
    assert lease["attributes"]["patchgym.lease.borrower"] == "me"
    assert lease["attributes"]["container.name"].startswith("patchgym-")
    assert (granted["status"], refused["status"]) == ("UNSET", "ERROR")
    assert refused["attributes"]["error.type"] == "LeaseTimeout"
    codes = [c["attributes"]["process.exit.code"] for c in named(told, "command")
             if c["parent"] == mine["id"]]  # fmt: skip
    assert codes == [3]
    inside = {span["parent"] for span in named(told, "command")}
    [reset] = named(told, "reset")
    assert {checkout["id"], tests["id"], reset["id"]} <= inside


def test_sandboxes_are_made_on_behalf_of_nobody(told: dict[str, Any]) -> None:
    made = named(told, "prepare sandbox")
    assert made
    assert all(span["parent"] is None for span in made)


def test_metrics_count_leases_failures_and_flaky_tests(told: dict[str, Any]) -> None:
    metrics = told["metrics"]
    assert sorted(metrics["patchgym.sandbox.lease.wait"], key=str) == [
        [{"error.type": "LeaseTimeout"}, 1],
        [{}, 1],
    ]
    assert [{"error.type": "LeaseTimeout"}, 1] in metrics["patchgym.sandbox.failures"]
    assert told["outcomes"] == {
        "test_it.py::test_flaky": "flaky",
        "test_it.py::test_fine": "passed",
    }
    outcomes = {a["patchgym.test.outcome"]: n for a, n in metrics["patchgym.test.outcomes"]}
    assert outcomes == {"flaky": 1, "passed": 1}


def test_slots_are_counted_while_the_pool_is_open_and_not_after(told: dict[str, Any]) -> None:
    states = {about["patchgym.slot.state"]: count for about, count in told["slots"]}
    assert states["leased"] == 1
    assert "patchgym.sandbox.slots" not in told["metrics"]
