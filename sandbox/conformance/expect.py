"""What checks are written with: expectations that say what was seen, and a list to join."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox import SandboxUsageError

from .contract import Backend, Capability, SandboxLike

LEASE_LIMIT = 120.0  # seconds that a check waits for its sandbox: a busy machine is no failure
STEP = 30.0  # seconds for a command that ends by itself
HARMFUL: tuple[Capability, ...] = ("limits", "isolation")
"""Their checks would hurt a machine that they ran on unconfined, so that is looked at first."""
LISTED: list[Check] = []
"""Every check, in the order of its definition; `suite.CHECKS` is what to read."""


class Unmet(Exception):
    """A back end did not do what a check demands; `str()` says what it did instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One demand."""

    name: str
    """Unique, for people and for `--only`."""
    capability: Capability
    """Whoever claims this is held to it."""
    demand: str
    """One line: what a back end must do."""
    run: Callable[[Backend], Awaitable[None]]
    """Raises when the back end does something else."""


async def see_that_it_is_elsewhere(sandbox: SandboxLike) -> None:
    """Unmet when the sandbox shares this machine's processes: a harmful check would harm us."""
    look = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/pid"
    there = (await sandbox.run(look, timeout=STEP)).stdout.text()
    if there == await anyio.to_thread.run_sync(_here):
        raise Unmet("it shares this machine's processes, so no more was tried")


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text() + os.readlink("/proc/self/ns/pid") + "\n" if boot.exists() else "?"


def demand(
    capability: Capability, text: str
) -> Callable[[Callable[[SandboxLike], Awaitable[None]]], Check]:
    """Makes a check of a function on a sandbox, which gets a lease of its own."""

    def listed(function: Callable[[SandboxLike], Awaitable[None]]) -> Check:
        async def run(backend: Backend) -> None:
            async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
                if capability in HARMFUL:
                    await see_that_it_is_elsewhere(sandbox)
                await function(sandbox)

        return _list(function, capability, text, run)

    return listed


def demand_of_backend(
    capability: Capability, text: str
) -> Callable[[Callable[[Backend], Awaitable[None]]], Check]:
    """Makes a check of a function on a back end, which takes its own leases."""

    def listed(function: Callable[[Backend], Awaitable[None]]) -> Check:
        async def run(backend: Backend) -> None:
            if capability in HARMFUL:
                async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
                    await see_that_it_is_elsewhere(sandbox)
            await function(backend)

        return _list(function, capability, text, run)

    return listed


def _list(
    function: object, capability: Capability, text: str, run: Callable[[Backend], Awaitable[None]]
) -> Check:
    name = str(getattr(function, "__name__", ""))
    check = Check(name=name, capability=capability, demand=text, run=run)
    LISTED.append(check)
    return check


def expect(holds: object, otherwise: str) -> None:
    """Raises Unmet with `otherwise` unless it holds."""
    if not holds:
        raise Unmet(otherwise)


def same(what: str, got: object, wanted: object) -> None:
    """Raises Unmet unless both are equal."""
    if got != wanted:
        raise Unmet(f"{what}: {_short(got)}, not {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}"


@contextmanager
def refusal(what: str, kind: type[Exception] = SandboxUsageError) -> Iterator[list[Exception]]:
    """Raises Unmet unless the block raises `kind`; the list then holds it."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as problem:
        caught.append(problem)
        return
    raise Unmet(f"{what} raised no {kind.__name__}")


async def printed(sandbox: SandboxLike, command: str) -> str:
    """What a shell command prints; Unmet when it fails."""
    done = await sandbox.run(command, timeout=STEP)
    expect(done.ok, f"{command!r} failed: {_short(done)}")
    return done.stdout.text()


async def is_alive(sandbox: SandboxLike, sleeper: int) -> bool:
    """Whether a `sleep` of so many seconds, which nobody else sleeps, runs."""
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -ao 'sleep [0-9]* ' || true"
    found = await printed(sandbox, look)
    return f"sleep {sleeper} " in found


async def until_alive(sandbox: SandboxLike, *sleepers: int) -> None:
    """Wait until each of these `sleep`s runs; Unmet when one does not come up."""
    for sleeper in sleepers:
        with anyio.move_on_after(STEP):
            while not await is_alive(sandbox, sleeper):  # noqa: ASYNC110 (another machine's)
                await anyio.sleep(0.05)
            continue
        raise Unmet(f"sleep {sleeper} does not run")
