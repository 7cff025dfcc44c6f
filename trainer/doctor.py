"""What this machine has and lacks, line by line, each lack with the command that mends it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from patchgym.datasets.cache import cache_dir

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor."""

    name: str
    good: bool
    text: str
    """What was found."""
    mend: str = ""
    """With `good` false: the command that mends it."""
    needed_for: str = "everything"
    """What does not work without it."""


def examine() -> list[Finding]:
    """All findings, in the order in which they should be mended (blocking; about a second)."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _git,
        _engine,
        _image,
        _image_builder,
        _supervisor,
        _train_extra,
        _weights,
        _cores,
        _memory,
        _disk,
    ]
    return [check() for check in checks]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    mend = "sudo apt-get install -y python3.11 python3.11-venv"
    return Finding(name="python", good=good, text=version, mend=mend)


def _git() -> Finding:
    path = shutil.which("git")
    mend = "sudo apt-get install -y git"
    return Finding(name="git", good=path is not None, text=path or "not found", mend=mend)


def _engine() -> Finding:
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=5)
        info = client.info()
        client.close()
    except (DockerException, OSError) as error:
        return Finding(
            name="docker engine", good=False, text=_engine_words(error), mend=_engine_mend(error)
        )
    text = f"{info['ServerVersion']}, {info['Driver']}, cgroup v{info.get('CgroupVersion', '1')}"
    return Finding(name="docker engine", good=True, text=text)


def _engine_words(error: Exception) -> str:
    denied = "Permission denied" in str(error) or "PermissionError" in str(error)
    return "the socket refuses this user" if denied else "no engine answers"


def _engine_mend(error: Exception) -> str:
    if _engine_words(error) != "no engine answers":
        return 'sudo usermod -aG docker "$USER", then log in again'
    if os.environ.get("DOCKER_HOST"):
        return "unset DOCKER_HOST, or start the engine that it names"
    if shutil.which("dockerd") or Path("/usr/sbin/dockerd").exists():
        return "sudo sh -c 'dockerd >/var/log/dockerd.log 2>&1 &'"
    return "sudo apt-get install -y docker.io"


def _image() -> Finding:
    from docker.errors import DockerException

    from patchgym.sandbox.images.base import BASES

    tag = BASES["bookworm"]
    mend = "patchgym images build"
    try:
        import docker

        client = docker.from_env(timeout=5)
        client.images.get(tag)
        client.close()
    except (DockerException, OSError):
        return Finding(name="base image", good=False, text=f"no {tag}", mend=mend)
    return Finding(name="base image", good=True, text=tag)


def _image_builder() -> Finding:
    path = shutil.which("mmdebstrap")
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        return Finding(
            name="image builder", good=True, text="mmdebstrap is installed when it is needed"
        )
    return Finding(
        name="image builder",
        good=path is not None,
        text=path or "no mmdebstrap: base images can only be pulled",
        mend="sudo apt-get install -y mmdebstrap",
        needed_for="building images where no registry answers",
    )


def _supervisor() -> Finding:
    from patchgym.sandbox.supervised import static_program

    built = [name for name in ("amd64", "arm64") if static_program(name)]
    return Finding(
        name="supervisor",
        good=bool(built),
        text=f"static, for {', '.join(built)}" if built else "no static program in the package",
        mend="pip install --force-reinstall patchgym (in a checkout: scripts/setup.sh)",
        needed_for="sandboxes of images without Python, and networks with an allow-list",
    )


def _train_extra() -> Finding:
    missing = [m for m in ("jax", "flax", "optax", "orbax") if importlib.util.find_spec(m) is None]
    if missing:
        return Finding(
            name="patchgym[train]",
            good=False,
            text=f"no {', '.join(missing)}",
            mend="pip install 'patchgym[train]'",
            needed_for="training",
        )
    versions = ", ".join(f"{m} {metadata.version(m)}" for m in ("jax", "flax", "optax"))
    return Finding(name="patchgym[train]", good=True, text=versions)


def _weights() -> Finding:
    from .model.weights import FILE_NAME

    path = cache_dir() / FILE_NAME
    return Finding(
        name="weights",
        good=path.is_file(),
        text=str(path) if path.is_file() else f"no {FILE_NAME} in {cache_dir()}",
        mend="patchgym images weights",
        needed_for="the quickstart",
    )


def _cores() -> Finding:
    count = len(os.sched_getaffinity(0))
    return Finding(name="cores", good=count >= 2, text=str(count), mend="a machine with 2 cores")


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    return Finding(
        name="memory",
        good=total >= 12,
        text=f"{total:.0f} GiB",
        mend="a machine with 12 GiB, or a smaller sampler.slots",
        needed_for="the quickstart",
    )


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / _GIB
    return Finding(
        name="disk",
        good=free >= 8,
        text=f"{free:.0f} GiB free here",
        mend="free some space (docker system prune)",
        needed_for="images and checkpoints",
    )
