"""A coin run under fire: started, shot at a chosen moment, resumed, and checked at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coin_runs import PATCHGYM, coin_run

LIMIT = 240.0
"""Seconds that a test waits for anything."""
CHANGES: dict[str, dict[str, Any]] = {
    "run": {"steps": 1_000_000},
    "checkpoint": {"every": 3},
    "sampler": {"compilation_cache": ""},
}
NAME = "coins"


class ChaosRun:
    """`patchgym train` in a folder of its own, which may be killed and resumed."""

    def __init__(
        self, root: Path, folder: Path, environment: Mapping[str, str], programs: Path
    ) -> None:
        """Compiled programs are kept in `programs`, so that only the first start is slow."""
        self.folder = folder
        self.run = folder / "runs" / NAME
        self.log = folder / "log"
        self.root = root
        self.environment = {
            **environment,
            "JAX_COMPILATION_CACHE_DIR": str(programs),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    def prepare(self, changes: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Write the model, the domain and the settings."""
        given = changes or {}
        merged = {
            section: {**CHANGES.get(section, {}), **given.get(section, {})}
            for section in {**CHANGES, **given}
        }
        coin_run(self.root, self.folder, merged)

    def add(self, source: str) -> None:
        """More Python for the domain's module, after `prepare`."""
        with (self.folder / "coins.py").open("a") as file:
            file.write(source)

    @contextmanager
    def training(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """A new run, or the same one resumed; killed at the end if it still goes on."""
        words = ["--resume", NAME] if self.run.exists() else ["--config", "run.toml"]
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [PATCHGYM, "train", *words, *more],
                cwd=self.folder, env=self.environment, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def until(self, process: subprocess.Popen[bytes], true: Callable[[], bool]) -> None:
        """Return once `true` is; fails when the process ends before, or it takes too long."""
        deadline = time.monotonic() + LIMIT
        while not true():
            said = self.log.read_text()[-3000:]
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            wait(0.02)

    def steps_made(self) -> int:
        """Steps that the present process told of."""
        return self.log.read_text().count("] step ")

    def go_on(self, process: subprocess.Popen[bytes], steps: int = 1) -> None:
        """Return once the process has told of `steps` more."""
        made = self.steps_made()
        self.until(process, lambda: self.steps_made() >= made + steps)

    def finish(self, step: int) -> None:
        """Resume, and run to the end at `step` updates."""
        with self.training("--run.steps", str(step)) as process:
            assert process.wait(LIMIT) == 0, self.log.read_text()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another `patchgym` command in the folder."""
        return subprocess.run(
            [PATCHGYM, *words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def check(self) -> dict[str, Any]:
        """What `runs check` says; fails when an invariant is broken."""
        done = self.command("runs", "check", NAME, "--json")
        assert done.returncode == 0, (done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def summary(self) -> dict[str, Any]:
        """What `runs show` says."""
        done = self.command("runs", "show", NAME, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def checkpoints(self) -> list[int]:
        """Steps of complete checkpoints, ascending."""
        folder = self.run / "checkpoints"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def writing_checkpoint(self) -> bool:
        """A checkpoint is half-written right now."""
        return any((self.run / "checkpoints").glob("*.orbax-checkpoint-tmp*"))

    def ledger_written(self) -> int:
        """When something was last written to the ledger's log, nanoseconds; 0 before."""
        try:
            return os.stat(self.run / "run.sqlite-wal").st_mtime_ns
        except OSError:
            return 0


def wait(seconds: float) -> None:
    """Let the other process go on."""
    time.sleep(seconds)
