"""Runs a recipe in a sandbox of its own, as root, and commits what it made."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox.container import Sandbox
from patchgym.sandbox.engine import Finish, ImageInfo
from patchgym.sandbox.errors import ImageError
from patchgym.sandbox.launch import start_sandbox
from patchgym.sandbox.reaper import current_owner
from patchgym.sandbox.result import CommandResult
from patchgym.sandbox.spec import SandboxSpec
from patchgym.sandbox.supervised import supervise

from .access import PLACE, BuildAccess
from .daemon import SCRATCH_MIB, ImageEngine
from .recipe import ImageRecipe

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What package managers need as root, and the supervisor to end processes of other users."""
MEMORY_MIB = 4096
LARGEST_FILE_MIB = 16384
PIDS = 1024
LOG_LIMIT = 4 << 20  # bytes of one command's output that its log keeps, of each stream
REMOVAL_LIMIT = 15.0  # seconds for a build's container to go
TIDY = (
    "rm -rf /tmp/* /tmp/.[!.]* /var/tmp/* /var/lib/apt/lists/* /var/cache/apt/*.bin "
    "/var/cache/apt/archives/*.deb"
)
"""What builds leave behind that no image needs."""
SETTLE = (
    "find . ! -user 1000 -exec chown -h 1000:1000 {} + && git -c 'safe.directory=*' ls-files "
    "--others --exclude-standard --directory | sed 's|^|/|' >> .git/info/exclude"
)
"""After root's work in a repository: its files are the agent's, and new ones not for its diff."""


class BuildLog:
    """The file that tells how a build went; its path is in the error when it failed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def add(self, text: str) -> None:
        """Append."""
        await anyio.to_thread.run_sync(self._append, text)

    def _append(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


async def build(
    engine: ImageEngine,
    recipe: ImageRecipe,
    base: ImageInfo,
    access: BuildAccess,
    log: BuildLog,
    finish: Finish,
    *,
    tree: bytes = b"",
) -> None:
    """Run the recipe's commands on `base` and commit that, within the recipe's timeout.

    With a `tree`, an archive, that is put in place first and it is the recipe's `install` that
    runs. Raises ImageError, which names the command that failed and the log; EngineUnavailable,
    SandboxUnavailable, SandboxLost.
    """
    commands = recipe.install if tree else recipe.commands
    folder = finish.workdir if tree else f"{PLACE}/files"
    await log.add(f"{finish.tag} on {base.tags[0] if base.tags else base.id}\n")
    try:
        with anyio.fail_after(recipe.timeout):
            async with _sandbox(engine, recipe, base) as sandbox:
                if commands:
                    await _lend(sandbox, recipe, access)
                if tree:
                    await sandbox.upload(tree, "/")
                await _run_all(sandbox, commands, folder, recipe, access, log)
                last, where = (f"{SETTLE} && {TIDY}", folder) if tree else (TIDY, "/")
                await _run(sandbox, last, where, {}, log, "tidying up", recipe.timeout)
                await engine.commit(sandbox.name, finish)
    except TimeoutError:
        limit = f"{recipe.timeout:g} s"
        raise ImageError(f"{finish.tag}: not built within {limit}; log: {log.path}") from None
    await log.add("done\n")


@asynccontextmanager
async def _sandbox(
    engine: ImageEngine, recipe: ImageRecipe, base: ImageInfo
) -> AsyncIterator[Sandbox]:
    spec = SandboxSpec(
        image=base.id,
        user="0:0",
        capabilities=CAPABILITIES,
        writable_root=True,
        workdir=f"{PLACE}/files",
        network=recipe.network,
        memory_mib=MEMORY_MIB + SCRATCH_MIB,
        disk_mib=LARGEST_FILE_MIB,
        cpus=float(os.cpu_count() or 1),
        pids=PIDS,
    )
    name = f"patchgym-{os.getpid()}-{secrets.token_hex(3)}-build"
    sandbox: Sandbox | None = None
    try:
        sandbox = await start_sandbox(
            engine,
            name,
            spec,
            image=base.id,
            supervised=await supervise(engine, spec, base.id),
            network=recipe.network,
            labels=current_owner().labels(),
        )
        yield sandbox
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * REMOVAL_LIMIT):
            if sandbox is not None:
                await sandbox.aclose()
            if sandbox is None or not await engine.gone(name, within=REMOVAL_LIMIT):
                await engine.remove(name)


async def _lend(sandbox: Sandbox, recipe: ImageRecipe, access: BuildAccess) -> None:
    contents = await anyio.to_thread.run_sync(lambda: list(access.contents()))
    for path, content, mode in contents:
        data = content
        if isinstance(data, Path):
            data = await anyio.to_thread.run_sync(data.read_bytes)
        await sandbox.write(f"{PLACE}/{path}", data, mode=mode)
    await sandbox.write(f"{PLACE}/files/.keep", b"")  # commands start there
    for path, data in recipe.files.items():
        await sandbox.write(path, data)


async def _run_all(
    sandbox: Sandbox,
    commands: Sequence[str],
    folder: str,
    recipe: ImageRecipe,
    access: BuildAccess,
    log: BuildLog,
) -> None:
    variables = {**access.variables(), **recipe.environment}
    deadline = anyio.current_time() + recipe.timeout
    for number, command in enumerate(commands, 1):
        left = max(deadline - anyio.current_time(), 0.001)
        step = f"command {number} of {len(commands)}, {shlex.quote(command[:80])}"
        await _run(sandbox, command, folder, variables, log, step, left)


async def _run(
    sandbox: Sandbox,
    command: str,
    folder: str,
    variables: Mapping[str, str],
    log: BuildLog,
    step: str,
    limit: float,
) -> None:
    await log.add(f"\n$ {command}\n")
    # the image's own pip, if any, comes first
    program = f'export PATH="$PATH:{PLACE}/bin"\n{command}'
    done = await sandbox.run(
        program, timeout=limit, cwd=folder, environment=variables, output_limit=LOG_LIMIT
    )
    end = _how_it_ended(done)
    await log.add(f"{done.stdout.text()}{done.stderr.text()}[{end}, {done.duration:.1f} s]\n")
    if not done.ok:
        last = "" if done.timed_out else f": {_last_line(done)[:300]}"
        raise ImageError(f"{step}: {end}{last}; log: {log.path}")


def _how_it_ended(done: CommandResult) -> str:
    if done.timed_out:
        return "stopped at the recipe's timeout"
    limits = f" (limits: {', '.join(done.limits_hit)})" if done.limits_hit else ""
    if done.signal is not None:
        return f"killed by signal {done.signal}{limits}"
    return f"exit code {done.exit_code}{limits}"


def _last_line(done: CommandResult) -> str:
    lines = done.stderr.text().strip().splitlines() or done.stdout.text().strip().splitlines()
    return (lines or ["no output"])[-1]
