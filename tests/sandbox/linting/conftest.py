"""The real linters in their image, on real repositories and diffs."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from patchgym.sandbox import (
    Linter,
    LintReport,
    Pool,
    Sandbox,
    lint,
    lint_spec,
)

WAIT = 120.0
"""Seconds that tests grant a lease or a linter: a busy machine is no failure."""
Files = Mapping[str, str | bytes | None]


@pytest.fixture
async def linted(lint_image: str) -> AsyncIterator[Sandbox]:
    """A sandbox with the linters."""
    async with Pool(lint_spec(lint_image), size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        yield sandbox


def git(folder: Path, *words: str) -> bytes:
    """Run git in a folder, as somebody."""
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
    command = ["git", *identity, "-c", "init.defaultBranch=main", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


def put(root: Path, files: Files) -> None:
    """Write files; None removes one."""
    for name, content in files.items():
        place = root / name
        if content is None:
            place.unlink()
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)


class Bench:
    """Lints what lies between two states of a repository."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self._folder = folder
        self._count = 0

    async def apply(self, before: Files, after: Files) -> Sequence[str]:
        """Check `before` out, and apply the diff to it with `after`; the diff's paths."""
        self._count += 1
        root = self._folder / str(self._count)
        root.mkdir()
        git(root, "init", "-q")
        put(root, before)
        git(root, "add", "-A", "-f")
        git(root, "commit", "-q", "--allow-empty", "-m", "before")
        await self.sandbox.checkout(root, git(root, "rev-parse", "HEAD").decode().strip())
        put(root, after)
        git(root, "add", "-A", "-f")
        diff = git(root, "diff", "--cached", "--binary", "-M", "HEAD")
        return (await self.sandbox.apply_patch(diff)).paths

    async def lint(
        self, before: Files, after: Files, *linters: Linter, timeout: float = WAIT
    ) -> LintReport:
        """What `linters` say of the change; `after` only names what differs."""
        paths = await self.apply(before, after)
        return await lint(self.sandbox, linters, timeout=timeout, paths=paths)


@pytest.fixture
def bench(linted: Sandbox, tmp_path: Path) -> Bench:
    """Lints changes in one sandbox, one after another."""
    return Bench(linted, tmp_path)
