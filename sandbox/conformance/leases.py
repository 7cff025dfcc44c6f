"""Checks of leases and of cancellation: how they end, and what stays usable."""

from __future__ import annotations

import anyio

from patchgym.sandbox import SandboxError

from .contract import Backend, ProcessLike, SandboxLike
from .expect import (
    LEASE_LIMIT,
    STEP,
    Unmet,
    demand,
    demand_of_backend,
    expect,
    is_alive,
    printed,
    refusal,
    same,
)
from .timeouts import SURVIVORS, none_survive


@demand_of_backend("lease", "each lease begins with an empty workdir and home, and no process")
async def fresh_leases(backend: Backend) -> None:
    for number in range(3):
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            same(f"files of lease {number}", await printed(sandbox, 'ls -A . "$HOME"'),
                 await printed(sandbox, 'printf ".:\\n\\n%s:\\n" "$HOME"'))  # fmt: skip
            expect(not await is_alive(sandbox, 7090), "a process of the lease before is alive")
            await printed(sandbox, 'touch a .b "$HOME/c"; setsid sleep 7090 >/dev/null 2>&1 &')


@demand_of_backend("lease", "after its lease a sandbox refuses everything with SandboxUsageError")
async def use_after_the_end(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        await sandbox.write("f", b"x")
    for name, request in (
        ("run()", lambda: sandbox.run("true", timeout=5)),
        ("start()", lambda: sandbox.start("true")),
        ("read()", lambda: sandbox.read("f")),
        ("write()", lambda: sandbox.write("f", b"y")),
        ("snapshot()", sandbox.snapshot),
    ):
        with refusal(f"{name} after the lease"):
            await request()


@demand_of_backend("lease", "a background command ends with its lease, as a SandboxError")
async def process_after_the_end(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        process: ProcessLike = await sandbox.start(["sleep", "60"])
    with anyio.fail_after(STEP), refusal("wait() after the lease", SandboxError):
        await process.wait()


@demand_of_backend(
    "lease", "an exception in the block comes out as it is, and the next lease works"
)
async def exceptions_pass(backend: Backend) -> None:
    mine = KeyError("mine")
    try:
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            await sandbox.start(["sleep", "7091"])
            raise mine
    except KeyError as problem:
        expect(problem is mine, "another KeyError came out")
    else:
        raise Unmet("no exception came out")
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        expect(not await is_alive(sandbox, 7091), "sleep 7091 is alive")


@demand_of_backend("lease", "two leases at one time are two sandboxes, with files of their own")
async def two_at_a_time(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as one:
        async with backend.lease(timeout=LEASE_LIMIT) as other:
            await one.write("f", b"one")
            await other.write("f", b"other")
            await printed(other, 'echo other >"$HOME/g"')
            same("file", await one.read("f"), b"one")
            same("home", await printed(one, 'ls -A "$HOME"'), "")
        same("the longer one", await printed(one, "cat f"), "one")


@demand_of_backend("lease", "a time-out in one sandbox leaves another's processes alone")
async def neighbours_live(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as one:
        process = await one.start("sleep 3; echo lived")
        async with backend.lease(timeout=LEASE_LIMIT) as other:
            expect((await other.run(SURVIVORS, timeout=0.5)).timed_out, "timed_out is False")
        same("stdout", (await process.wait()).stdout.head, b"lived\n")


@demand("cancellation", "a cancelled command dies with all that it started; the sandbox goes on")
async def cancelled_command(sandbox: SandboxLike) -> None:
    for _ in range(3):
        started = anyio.current_time()
        with anyio.move_on_after(0.4) as scope:
            await sandbox.run(SURVIVORS, timeout=60)
        expect(scope.cancelled_caught, "run() swallowed its cancellation")
        expect(anyio.current_time() - started < 2, "cancellation took over a second and a half")
    await none_survive(sandbox, 7001, 7005)
    same("afterwards", await printed(sandbox, "echo fine"), "fine\n")


@demand("cancellation", "cancelling one command leaves those beside it alone")
async def cancelled_alone(sandbox: SandboxLike) -> None:
    answers: list[bytes] = []

    async def other() -> None:
        answers.append((await sandbox.run("sleep 1.5; echo other", timeout=STEP)).stdout.head)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        tasks.start_soon(other)
        await anyio.sleep(0.2)
        with anyio.move_on_after(0.4):
            await sandbox.run(["sleep", "7095"], timeout=60)
    same("answers", answers, [b"other\n"] * 2)
    expect(not await is_alive(sandbox, 7095), "sleep 7095 is alive")


@demand("cancellation", "a wait for a background command that is given up can be taken up again")
async def cancelled_wait(sandbox: SandboxLike) -> None:
    process = await sandbox.start("sleep 1; echo end; exit 3")
    with anyio.move_on_after(0.2) as scope:
        await process.wait()
    expect(scope.cancelled_caught, "wait() swallowed its cancellation")
    done = await process.wait()
    same("result", (done.exit_code, done.stdout.head), (3, b"end\n"))


@demand("cancellation", "many commands cancelled at any moment cost no answer of the others")
async def cancelled_storm(sandbox: SandboxLike) -> None:
    async def brief(number: int) -> None:
        with anyio.move_on_after(number * 0.003):
            await sandbox.run(f"sleep 0.0{number}; echo {number}", timeout=STEP)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(brief, number)
    for number in range(5):
        same("afterwards", await printed(sandbox, f"echo {number}"), f"{number}\n")


@demand("cancellation", "requests for files can be cancelled; the sandbox goes on")
async def cancelled_files(sandbox: SandboxLike) -> None:
    data = b"x" * (12 << 20)
    await sandbox.write("f", data)
    for moment in (0.0, 0.001, 0.005, 0.02):
        with anyio.move_on_after(moment):
            await sandbox.read("f")
        with anyio.move_on_after(moment):
            await sandbox.write("g", data[: 1 << 20])
    same("afterwards", len(await sandbox.read("f")), len(data))


@demand_of_backend("cancellation", "a lease that is cancelled, waiting or held, frees its place")
async def cancelled_lease(backend: Backend) -> None:
    for moment in (0.0, 0.01, 0.5):
        with anyio.move_on_after(moment):
            async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
                await sandbox.run(["sleep", "7096"], timeout=60)
    async with backend.lease(timeout=LEASE_LIMIT), backend.lease(timeout=LEASE_LIMIT) as sandbox:
        expect(not await is_alive(sandbox, 7096), "sleep 7096 is alive")
