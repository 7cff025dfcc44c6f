"""Base images: Debian with python3, pytest and git, built once from what this machine can reach.

A registry is tried first, with a short deadline; where none answers, the image is made of Debian
packages by mmdebstrap (about 40 s), which apt installs when we are root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox.engine import Engine
from patchgym.sandbox.errors import ImageError

BASES = {
    "bookworm": "patchgym/base:bookworm-py311",
    "bullseye": "patchgym/base:bullseye-py39",
}
"""Names of the images that ensure_base() knows, and their tags."""
LABEL = "patchgym.image"
PACKAGES = ("python3", "python3-pytest", "git")
REGISTRY_LIMIT = 8.0  # seconds until a registry counts as silent
BUILD_LIMIT = 900.0  # seconds for the whole build
GITCONFIG = "[safe]\\n\\tdirectory = *\\n[gc]\\n\\tauto = 0\\n"
FINISH = f"""set -e
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/*
id agent >/dev/null 2>&1 || useradd --create-home --uid 1000 agent
mkdir -p /workspace && chown 1000:1000 /workspace
printf '{GITCONFIG}' > /etc/gitconfig
python3 -m compileall -q -j0 /usr/lib/python3* || true
"""
"""What a container of packages still needs; compiled modules start pytest five times faster."""


async def ensure_base(name: str = "bookworm", *, engine: Engine | None = None) -> str:
    """The tag of a base image, which is built when it is not there.

    Raises ImageError when it can't be built, with every way that was tried; EngineUnavailable.
    """
    if name not in BASES:
        raise ImageError(f"no base image called {name!r}; there is {', '.join(BASES)}")
    tag = BASES[name]
    used = engine or Engine()
    try:
        if await used.image_id(tag) is None:
            official = f"debian:{name}-slim"
            offered = await used.registry_offers(official, within=REGISTRY_LIMIT)
            await anyio.to_thread.run_sync(_build, name, tag, used.url, offered)
        return tag
    finally:
        if engine is None:
            used.close()


def _build(name: str, tag: str, url: str, registry: bool) -> None:
    docker = _Docker(url)
    silent = "none answers"
    if registry:
        try:
            _build_on_debian(docker, name, tag)
            return
        except ImageError as problem:
            silent = str(problem)
    try:
        _build_from_packages(docker, name, tag)
    except ImageError as problem:
        raise ImageError(f"can't make {tag}: registry: {silent}; packages: {problem}") from problem


def _build_on_debian(docker: _Docker, name: str, tag: str) -> None:
    recipe = f"""FROM debian:{name}-slim
RUN apt-get update && apt-get install -y --no-install-recommends {" ".join(PACKAGES)}
COPY finish /finish
RUN sh /finish && rm /finish
LABEL {LABEL}={name}
"""
    with tempfile.TemporaryDirectory(prefix="patchgym-image-") as folder:
        Path(folder, "Dockerfile").write_text(recipe)
        Path(folder, "finish").write_text(FINISH)
        docker.run("build", "-q", "-t", tag, folder, limit=BUILD_LIMIT)


def _build_from_packages(docker: _Docker, name: str, tag: str) -> None:
    tool = shutil.which("mmdebstrap") or _install_mmdebstrap()
    with tempfile.TemporaryDirectory(prefix="patchgym-image-") as folder:
        finish = Path(folder, "finish")
        finish.write_text(FINISH)
        tree = Path(folder, "root.tar")
        _run(
            tool, "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}",
            "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
            f"--customize-hook=copy-in {finish} /", "--customize-hook=chroot $1 sh /finish",
            "--customize-hook=rm $1/finish", name, str(tree), *_sources(name),
            limit=BUILD_LIMIT,
        )  # fmt: skip
        docker.run("import", "-c", f"LABEL {LABEL}={name}", str(tree), tag, limit=BUILD_LIMIT)


def _sources(name: str) -> list[str]:
    """This machine's own package sources when it runs the same Debian, or mmdebstrap's default."""
    found = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    texts = [path.read_text() for path in found if path.is_file()]
    same = [text for text in texts if "debian" in text and name in text]
    return [str(path) for path in found if path.is_file() and path.read_text() in same]


def _install_mmdebstrap() -> str:
    if os.geteuid() != 0:
        raise ImageError("mmdebstrap is not installed: apt-get install mmdebstrap as root")
    _run("apt-get", "update", "-q", limit=BUILD_LIMIT)
    _run("apt-get", "install", "-q", "-y", "mmdebstrap", limit=BUILD_LIMIT)
    found = shutil.which("mmdebstrap")
    if found is None:
        raise ImageError("apt-get installed mmdebstrap, but it is not in PATH")
    return found


class _Docker:
    """The docker command against the same daemon as the engine: builds stream their context."""

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, *words: str, limit: float) -> str:
        """Raises ImageError with docker's last line."""
        return _run("docker", *words, limit=limit, environment={"DOCKER_HOST": self._url})


def _run(*words: str, limit: float, environment: dict[str, str] | None = None) -> str:
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
    try:
        done = subprocess.run(
            words, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=limit, check=False,
        )  # fmt: skip
    except FileNotFoundError as problem:
        raise ImageError(f"{words[0]} is not installed") from problem
    except subprocess.TimeoutExpired as problem:
        raise ImageError(f"{words[0]} {words[1]} took more than {limit:.0f} s") from problem
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no reason"]
        raise ImageError(f"{words[0]} {words[1]}: {last[0][:200]}")
    return done.stdout
