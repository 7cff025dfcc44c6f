"""Small git repositories on this machine, for the checks of checkouts and patches."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

Files = Mapping[str, str | bytes]


@asynccontextmanager
async def repository(*commits: Files) -> AsyncIterator[tuple[Path, str]]:
    """A repository with one commit for each mapping of files; it and the last commit's id."""
    folder = await anyio.to_thread.run_sync(_folder)
    try:
        yield await anyio.to_thread.run_sync(_fill, Path(folder.name), commits)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)


async def git(folder: Path, *words: str) -> str:
    """Run git on this machine, as nobody in particular; what it prints."""
    return await anyio.to_thread.run_sync(_git, folder, words)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="patchgym-conformance-")


def _fill(root: Path, commits: tuple[Files, ...]) -> tuple[Path, str]:
    _git(root, ("init", "-q", "--template="))
    for number, files in enumerate(commits):
        for path, content in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
        _git(root, ("add", "-A"))
        _git(root, ("commit", "-q", "--allow-empty", "-m", f"commit {number}"))
    return root, _git(root, ("rev-parse", "HEAD"))


def _git(folder: Path, words: tuple[str, ...]) -> str:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "Ada", f"GIT_{role}_EMAIL": "ada@localhost"}
    command = ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()
