"""The page of sandboxes beside a real engine."""

from __future__ import annotations

import json
from pathlib import Path

import anyio.to_thread
import pytest
from dashboard_runs import client_of, finished, found, step, write

from patchgym.sandbox import Pool, SandboxSpec
from patchgym.sandbox.reaper import current_owner


@pytest.mark.docker
async def test_a_sandbox_is_listed_with_its_owner_and_its_run(
    tmp_path: Path, docker_image: str
) -> None:
    folder = finished(tmp_path, "mine")
    owner = json.dumps(current_owner().labels())
    (folder.path / "heartbeat.json").write_text(owner)  # as if this process ran it
    spec = SandboxSpec(image=docker_image, memory_mib=96, disk_mib=32, pids=64)
    async with Pool(spec, size=1) as pool, pool.lease(timeout=120.0):
        client = client_of(tmp_path)
        answer = await anyio.to_thread.run_sync(lambda: found(client, "/sandboxes/now"))
    rows = [row for row in answer["parts"]["part-rows"].split("<tr>") if "/runs/mine" in row]
    assert any("running" in row and "patchgym-" in row and "MiB" in row for row in rows)


def test_lease_waits_are_told_by_the_last_steps(tmp_path: Path) -> None:
    stages = {"lease wait": {"seconds": 8.0, "buckets": {"16": 3, "32": 1}}}
    write(finished(tmp_path, "run"), step(3, idle={"seconds": 10.0, "stages": stages}))
    rows = found(client_of(tmp_path), "/sandboxes/now")["parts"]["part-rows"]
    cells = rows.split("/runs/run")[-1]
    assert '<td class="num">4</td><td class="num">4 s</td><td class="num">16 s</td>' in cells
