"""Images of a test's own, and repositories that are written down as text."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import anyio.to_thread
import pytest
from own_images import own_images

from patchgym.sandbox import BuildAccess, ImageStore


@pytest.fixture
def prefix(docker_image: str) -> Iterator[str]:
    """A set of images of this test's own, gone after it."""
    with own_images() as name:
        yield name


@pytest.fixture
async def store(prefix: str, tmp_path: Path) -> AsyncIterator[ImageStore]:
    """An image store whose builds may use what this machine's pip may."""
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access, prefix=prefix, folder=tmp_path / "store") as store:
        yield store


class Repository:
    """A git repository with one branch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._git("init", "-q")

    def commit(self, files: Mapping[str, str], day: str) -> str:
        """Write files and commit them on a day; the id."""
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dedent(text))
        self._git("add", "-A")
        self._git("commit", "-qm", "a change", day=day)
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str, day: str = "2023-10-19") -> str:
        stamp = f"{day}T12:00:00Z"
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
        return subprocess.run(
            ["git", "-C", str(self.folder), *identity, *words],
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "GIT_AUTHOR_DATE": stamp,
                "GIT_COMMITTER_DATE": stamp,
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository of ada's, called shop."""
    return Repository(tmp_path / "ada" / "shop")
