"""The contestants of the benchmark, each in a process that makes a step when it is told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
TUNIX = "0.1.7"
PEER = BENCHMARKS / "peers" / "tunix_learner.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One contestant."""

    name: str
    note: str
    """How it is set, in a few words."""
    settings: dict[str, Any]
    peer: bool = False
    """It is Tunix, which has a Python of its own."""


@dataclass(slots=True)
class Run:
    """What one contestant did."""

    side: Side
    ready: dict[str, Any]
    """What it said once compiled: trained and computed tokens, peak bytes by program."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """What each timed step said: seconds, processor seconds, loss, bytes resident."""


class Stepper:
    """A contestant's process, from its start to its end."""

    def __init__(self, side: Side, folder: Path, peer_python: str, cores: Sequence[int]) -> None:
        """Start it over `folder`, on the processors `cores`, on all when there are none."""
        self._side = side
        given = json.dumps(side.settings)
        if side.peer:
            command = [peer_python, str(PEER), str(folder), given]
        else:
            command = [
                sys.executable,
                str(BENCHMARKS / "learner.py"),
                "--inner",
                str(folder),
                given,
            ]
        if cores:
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        self._errors: IO[str] = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | _cached(folder),
        )

    def __enter__(self) -> Stepper:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def ready(self) -> Run:
        """Wait until it is compiled."""
        return Run(self._side, self._answer())

    def step(self) -> dict[str, Any]:
        """One optimizer step."""
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """The next line of JSON; other lines are passed over. Raises SystemExit at the end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        self._errors.seek(0)
        last = self._errors.read()[-3000:]
        raise SystemExit(f"{self._side.name} ended with {self._process.wait()}:\n{last}")


def _cached(folder: Path) -> dict[str, str]:
    """So that a program whose memory was analysed is not compiled again to be run."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def peer_environment() -> Path:
    """The Python of `.bench/tunix`, made when it is missing (about 2 GB from PyPI)."""
    folder = ROOT / ".bench" / "tunix"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        wanted = [f"google-tunix=={TUNIX}", "jax==0.10.2"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
    return python
