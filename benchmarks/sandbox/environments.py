"""Rivals are no dependencies: each has a virtual environment of its own, in the cache folder."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from patchgym.datasets.cache import cache_dir
from patchgym.sandbox import Engine
from patchgym.sandbox.engine import Finish

PINS = {
    "swe-rex": ("swe-rex==1.4.0", "aiohttp==3.14.5"),  # it imports aiohttp, but does not ask for it
    "llm-sandbox": ("llm-sandbox[docker]==0.3.46",),
    "mini-swe-agent": ("mini-swe-agent==2.4.6",),
    "swebench": ("swebench==5.0.2",),
}
INSTALL_LIMIT = 400.0  # seconds
LABEL = "patchgym.bench"
PYTHON_OF_IMAGE = "3.11"
SCRIPTS = {
    "swerex-remote": 'PYTHONPATH=/opt/swe-rex exec python3 -m swerex.server "$@"',
    "python": 'exec python3 "$@"',
    "kill": 'kill "$@"',
}
"""What the base image lacks: SWE-ReX starts the first, llm-sandbox runs code with the second,
swebench ends commands with the third (a shell has it built in, an exec finds none)."""


class Unavailable(Exception):
    """A rival that can't take part, and why."""


def home() -> Path:
    """Where all of it is."""
    return cache_dir() / "bench-sandbox-venv"


def python_of(rival: str) -> Path:
    """The interpreter of a rival's environment, made when missing. Raises Unavailable."""
    folder = home() / rival
    python, mark = folder / "bin" / "python", folder / "pins.txt"
    wanted = "\n".join(PINS[rival])
    if not mark.is_file() or mark.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        uv("venv", "--quiet", "--python", sys.executable, str(folder))
        uv("pip", "install", "--quiet", "--python", str(python), *PINS[rival])
        mark.write_text(wanted)
    return python


def uv(*words: str) -> None:
    """Run uv. Raises Unavailable with its complaint."""
    beside = Path(sys.executable).with_name("uv")
    command = [str(beside) if beside.is_file() else "uv", *words]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT)
    except subprocess.CalledProcessError as problem:
        last = (problem.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"can't be installed: {last[:160]}") from None
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unavailable(f"can't be installed: {type(problem).__name__}") from None


async def image_for_rivals(engine: Engine, image: str) -> str:
    """`image` with SWE-ReX's server and SCRIPTS added, made once. Raises Unavailable."""
    base = (await engine.image_id(image) or "").removeprefix("sha256:")[:12]
    pin = PINS["swe-rex"][0]
    content = hashlib.sha256(repr((pin, SCRIPTS)).encode()).hexdigest()[:8]
    tag = f"patchgym/bench-rivals:{base}-{content}"
    if await engine.image_id(tag) is None:
        with tempfile.TemporaryDirectory(prefix="bench-sandbox-") as folder:
            uv(
                *("pip", "install", "--quiet", "--target", folder),
                *("--python-version", PYTHON_OF_IMAGE, pin),
            )
            finish = Finish(
                tag=tag,
                labels={LABEL: "image"},
                message="SWE-ReX's server",
                user="0:0",
                workdir="/",
            )
            await engine.derive(image, _archive(Path(folder)), finish)
    return tag


def _archive(site: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(site, "opt/swe-rex")
        for name, line in SCRIPTS.items():
            data = f"#!/bin/sh\n{line}\n".encode()
            member = tarfile.TarInfo(f"usr/local/bin/{name}")
            member.mode, member.size = 0o755, len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
