"""A coin run whose learner is spread over several processes of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coin_runs import PATCHGYM

DEADLINE = 400.0
"""Seconds that a run may take on a busy machine of two cores."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def flags(index: int, count: int, port: int) -> list[str]:
    """Those that say which process it is."""
    place = ["--process", str(index), "--coordinator", f"127.0.0.1:{port}"]
    return ["--processes", str(count), *place]


def slurm(index: int, count: int) -> dict[str, str]:
    """What SLURM tells a process, of a job on this machine alone."""
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(index),
        "SLURM_LOCALID": str(index),
    }


@dataclass(frozen=True, slots=True)
class Running:
    """Processes that run `patchgym train` together."""

    folder: Path
    processes: list[subprocess.Popen[bytes]]

    def lines(self) -> list[dict[str, Any]]:
        """What process 0 has told so far, on standard output."""
        whole = self.folder.joinpath("0.out").read_text().split("\n")[:-1]
        return [json.loads(line) for line in whole]

    def steps(self) -> list[dict[str, Any]]:
        """The steps that were applied so far."""
        return [line for line in self.lines() if line["kind"] == "step"]

    def said(self, index: int) -> str:
        """What a process wrote to standard error."""
        return self.folder.joinpath(f"{index}.err").read_text()

    def until_step(self, count: int) -> None:
        """Return once `count` steps were told."""
        deadline = time.monotonic() + DEADLINE
        while len(self.steps()) < count:
            assert time.monotonic() < deadline, self.said(0)[-2000:]
            ended = [each.poll() for each in self.processes]
            assert ended == [None] * len(ended), (ended, self.said(0)[-2000:])
            time.sleep(0.05)

    def codes(self, limit: float = DEADLINE) -> list[int]:
        """Exit codes, once all have ended."""
        deadline = time.monotonic() + limit
        return [each.wait(max(0.1, deadline - time.monotonic())) for each in self.processes]


@contextmanager
def running(
    folder: Path,
    words: Sequence[Sequence[str]],
    *,
    devices: int,
    environments: Sequence[Mapping[str, str]] = (),
) -> Iterator[Running]:
    """`patchgym train` with each of `words`, in `folder`, of `devices` each; none outlives this."""
    simulated = f"--xla_force_host_platform_device_count={devices}"
    common = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": f"{simulated} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for index, each in enumerate(words):
            own = environments[index] if environments else {}
            with (
                open(folder / f"{index}.out", "wb") as out,
                open(folder / f"{index}.err", "wb") as err,
            ):
                started.append(
                    subprocess.Popen(
                        [PATCHGYM, "train", *each],
                        cwd=folder,
                        env={**common, **own},
                        stdout=out,
                        stderr=err,
                    )
                )
        yield Running(folder, started)
    finally:
        for process in started:
            process.kill()
            process.wait()
