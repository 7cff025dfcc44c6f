"""Real lint runs for tests of reward components: two states of some files, the real linters."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio.to_thread
from changes import change, scene

from patchgym.rewards.component import Component
from patchgym.rewards.scene import Scene
from patchgym.sandbox import BuildAccess, ImageStore, Pool, lint, lint_spec
from patchgym.sandbox.linting import LintReport, ensure_lint_image

WAIT = 120.0
"""Seconds for a lease or a linter: a busy machine is no failure."""


async def lint_scene(
    folder: Path, before: Mapping[str, str], after: Mapping[str, str], component: Component
) -> Scene:
    """The scene of what leads from `before` to `after`, with what the linters that the component
    asks for say of it; `folder` must be empty."""
    report = await run_linters(folder, before, after, component)
    made = change(before, {**before, **after})
    return dataclasses.replace(scene(made), lint=report)


async def run_linters(
    folder: Path, before: Mapping[str, str], after: Mapping[str, str], component: Component
) -> LintReport:
    """The report alone; the image is built when it is missing."""
    _git(folder, "init", "-q")
    base = _commit(folder, before)
    _commit(folder, after)
    diff = _git(folder, "diff", "--binary", base)
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store:
        image = await ensure_lint_image(store)
    async with Pool(lint_spec(image), size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        await sandbox.checkout(folder, base)
        applied = await sandbox.apply_patch(diff)
        return await lint(sandbox, component.linters(), timeout=WAIT, paths=applied.paths)


def _commit(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    _git(folder, "add", "-A", "-f")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "state")
    return _git(folder, "rev-parse", "HEAD").decode().strip()


def _git(folder: Path, *words: str) -> bytes:
    identity: Sequence[str] = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
    command = ["git", *identity, "-c", "init.defaultBranch=main", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout
