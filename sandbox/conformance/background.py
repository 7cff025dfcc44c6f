"""Checks of background commands: start, wait, kill."""

from __future__ import annotations

import anyio

from .contract import ProcessLike, SandboxLike
from .expect import STEP, demand, expect, is_alive, printed, same, until_alive


@demand("background", "start() comes back at once, wait() with the end")
async def start_and_wait(sandbox: SandboxLike) -> None:
    started = anyio.current_time()
    process = await sandbox.start("sleep 1; echo out; echo err >&2; exit 3")
    expect(anyio.current_time() - started < 0.9, "start() waited for the command")
    done = await process.wait()
    same("exit_code", done.exit_code, 3)
    same("streams", (done.stdout.head, done.stderr.head), (b"out\n", b"err\n"))


@demand("background", "wait() gives the same result again")
async def wait_again(sandbox: SandboxLike) -> None:
    process = await sandbox.start("echo once; exit 2")
    first = await process.wait()
    same("second wait()", await process.wait(), first)


@demand("background", "other commands run meanwhile")
async def meanwhile(sandbox: SandboxLike) -> None:
    process = await sandbox.start("while ! test -e go; do sleep 0.02; done; echo went")
    await printed(sandbox, "touch go")
    same("stdout", (await process.wait()).stdout.head, b"went\n")


@demand("background", "thirty at once, waited for in another order, each with its own answer")
async def many_at_once(sandbox: SandboxLike) -> None:
    started: list[ProcessLike] = [
        await sandbox.start(f"echo {number}; exit {number}") for number in range(30)
    ]
    for number, process in reversed(list(enumerate(started))):
        done = await process.wait()
        same("answer", (done.exit_code, done.stdout.text()), (number, f"{number}\n"))


@demand("background", "kill() ends the command and all that it started, within a second")
async def kill(sandbox: SandboxLike) -> None:
    command = "setsid sleep 7051 & (setsid sleep 7052 &) ; trap '' TERM; exec sleep 7053"
    process = await sandbox.start(command)
    await until_alive(sandbox, 7051, 7052, 7053)
    started = anyio.current_time()
    done = await process.kill()
    expect(anyio.current_time() - started < 1, "kill() took over a second")
    expect(done.killed >= 3, f"{done.killed} processes were counted as killed")
    same("ok and timed_out", (done.ok, done.timed_out), (False, False))
    for sleeper in (7051, 7052, 7053):
        expect(not await is_alive(sandbox, sleeper), f"sleep {sleeper} is alive")


@demand("background", "kill() spares other background commands")
async def kill_spares_others(sandbox: SandboxLike) -> None:
    other = await sandbox.start("setsid sleep 7061 & exec sleep 7062")
    victim = await sandbox.start(["sleep", "7063"])
    await until_alive(sandbox, 7061, 7062)
    await victim.kill()
    expect(not await is_alive(sandbox, 7063), "the killed command is alive")
    for sleeper in (7061, 7062):
        expect(await is_alive(sandbox, sleeper), f"sleep {sleeper} died as well")
    await other.kill()


@demand("background", "kill() of what has ended changes nothing")
async def kill_after_the_end(sandbox: SandboxLike) -> None:
    process = await sandbox.start("exit 7")
    first = await process.wait()
    same("kill()", await process.kill(), first)
    unseen = await sandbox.start("exit 8")
    await printed(sandbox, "sleep 0.3")
    same("exit_code of what ended unseen", (await unseen.kill()).exit_code, 8)


@demand("background", "a background command has its own limit, and may have none")
async def background_limit(sandbox: SandboxLike) -> None:
    started = anyio.current_time()
    process = await sandbox.start(["sleep", "60"], timeout=0.5)
    done = await process.wait()
    expect(done.timed_out and "time" in done.limits_hit, "it was not timed out")
    expect(anyio.current_time() - started < 2, "its end came over a second late")
    unlimited = await sandbox.start("sleep 2; exit 1")
    same("exit_code without a limit", (await unlimited.wait()).exit_code, 1)


@demand("background", "`async with` kills what still runs at the block's end")
async def block_end_kills(sandbox: SandboxLike) -> None:
    async with await sandbox.start(["sleep", "7071"]) as process:
        await until_alive(sandbox, 7071)
    expect(not await is_alive(sandbox, 7071), "sleep 7071 is alive")
    expect(not (await process.wait()).ok, "its result is ok")


@demand("background", "what a result keeps of unread output is bounded, and nothing hangs")
async def unread_output(sandbox: SandboxLike) -> None:
    for stream in (False, True):
        process = await sandbox.start(
            "head -c 5000000 /dev/zero; exit 3", stream=stream, output_limit=1000
        )
        with anyio.fail_after(STEP):
            done = await process.wait()
        kept = len(done.stdout.head) + len(done.stdout.tail)
        same("exit_code and bytes", (done.exit_code, kept + done.stdout.dropped), (3, 5_000_000))
        expect(kept <= 1000, f"{kept} bytes kept")
