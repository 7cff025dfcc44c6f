"""A warm pool and real repositories for the sandbox tests."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from patchgym.sandbox import Pool, Sandbox, SandboxSpec

WAIT = 120.0
"""Seconds that tests grant a lease: a busy machine is no failure."""


@pytest.fixture
def spec(docker_image: str) -> SandboxSpec:
    """Small limits, so that hitting them is quick."""
    return SandboxSpec(image=docker_image, memory_mib=96, disk_mib=32, pids=64)


@pytest.fixture
async def pool(spec: SandboxSpec) -> AsyncIterator[Pool]:
    """One slot."""
    async with Pool(spec, size=1) as pool:
        yield pool


@pytest.fixture
async def sandbox(pool: Pool) -> AsyncIterator[Sandbox]:
    """A fresh sandbox."""
    async with pool.lease(timeout=WAIT) as sandbox:
        yield sandbox


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as somebody."""
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
    command = ["git", *identity, "-c", "init.defaultBranch=main", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """Makes a repository: one commit for each mapping of files; returns it and the last commit."""

    def make(*commits: dict[str, str | bytes]) -> tuple[Path, str]:
        root = tmp_path / "repository"
        root.mkdir()
        git(root, "init", "-q")
        for number, files in enumerate(commits):
            for name, content in files.items():
                place = root / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.encode() if isinstance(content, str) else content)
            git(root, "add", "-A")
            git(root, "commit", "-q", "-m", f"commit {number}")
        return root, git(root, "rev-parse", "HEAD")

    return make
