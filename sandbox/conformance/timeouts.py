"""Checks of limits in time: the answer is prompt, and nothing of the command lives on."""

from __future__ import annotations

import anyio

from patchgym.sandbox import CommandResult

from .contract import SandboxLike
from .expect import STEP, demand, expect, is_alive, printed, same

SURVIVORS = """
sleep 7001 &
setsid sleep 7002 &
(setsid sleep 7003 >/dev/null 2>&1 </dev/null &)
(trap '' TERM HUP INT; sleep 7004; :) &
trap '' HUP TERM
exec sleep 7005
"""
"""Five ways to outlive a shell: a child, a session, an orphan, a deaf one, the command itself."""


async def none_survive(sandbox: SandboxLike, first: int, last: int) -> None:
    """Unmet when one of these sleepers is alive."""
    left = [each for each in range(first, last + 1) if await is_alive(sandbox, each)]
    expect(not left, f"alive: sleep {', sleep '.join(map(str, left))}")


@demand("timeouts", "the answer comes within a second of the limit")
async def prompt_answer(sandbox: SandboxLike) -> None:
    await sandbox.run(["true"], timeout=STEP)
    for limit in (0.2, 1.0):
        started = anyio.current_time()
        done = await sandbox.run(["sleep", "60"], timeout=limit)
        took = anyio.current_time() - started
        expect(done.timed_out, "timed_out is False")
        expect(limit - 0.01 <= took < limit + 1, f"a limit of {limit} s was answered in {took:.2f}")


@demand("timeouts", "a time-out is neither an exit status nor a signal, and is named")
async def time_is_named(sandbox: SandboxLike) -> None:
    done = await sandbox.run("trap 'exit 0' TERM; sleep 60 & wait", timeout=0.3)
    same("exit_code and signal", (done.exit_code, done.signal), (None, None))
    same("timed_out, ok, limits_hit", (done.timed_out, done.ok, done.limits_hit),
         (True, False, ("time",)))  # fmt: skip
    expect(done.killed >= 1, "no process was counted as killed")


@demand("timeouts", "all five processes of a command die, however they detached themselves")
async def five_survivors(sandbox: SandboxLike) -> None:
    done = await sandbox.run(SURVIVORS, timeout=1.0)
    expect(done.timed_out, "timed_out is False")
    expect(done.killed >= 5, f"{done.killed} processes were counted as killed")
    await none_survive(sandbox, 7001, 7005)


@demand("timeouts", "a process that scrubbed its environment and detached itself dies too")
async def scrubbed_survivor(sandbox: SandboxLike) -> None:
    keep = await sandbox.start(["sleep", "7030"])
    scrubbed = "(env -i setsid /bin/sh -c 'sleep 7021; :' >/dev/null 2>&1 &); sleep 60"
    done = await sandbox.run(scrubbed, timeout=0.7)
    expect(done.timed_out, "timed_out is False")
    await none_survive(sandbox, 7021, 7021)
    expect(await is_alive(sandbox, 7030), "another command's process died as well")
    await keep.kill()


@demand("timeouts", "a command that stopped itself is ended at its limit")
async def stopped_command(sandbox: SandboxLike) -> None:
    done = await sandbox.run("sleep 7025 & kill -STOP $!; kill -STOP $$", timeout=0.5)
    expect(done.timed_out, f"timed_out is False, exit_code {done.exit_code}")
    await none_survive(sandbox, 7025, 7025)


@demand("timeouts", "a command that closed its streams is waited for, and timed out, all the same")
async def closed_streams(sandbox: SandboxLike) -> None:
    done = await sandbox.run("exec >&- 2>&-; sleep 0.5; exit 4", timeout=STEP)
    same("exit_code", done.exit_code, 4)
    late = await sandbox.run("exec >&- 2>&-; exec sleep 60", timeout=0.5)
    expect(late.timed_out, "timed_out is False")


@demand("timeouts", "what a command printed before its limit is there")
async def output_before_the_limit(sandbox: SandboxLike) -> None:
    done = await sandbox.run("echo before; echo too >&2; sleep 60", timeout=0.7)
    same("stdout", done.stdout.head, b"before\n")
    same("stderr", done.stderr.head, b"too\n")


@demand("timeouts", "an endless flood of output ends at the limit")
async def endless_output(sandbox: SandboxLike) -> None:
    started = anyio.current_time()
    done = await sandbox.run(["cat", "/dev/zero"], timeout=1.0)
    expect(done.timed_out and done.stdout.dropped > 0, "it did not flood, or was not timed out")
    expect(anyio.current_time() - started < 2.5, "the answer took more than 2.5 s")


@demand("timeouts", "what earlier commands left in the background lives on, with its children")
async def earlier_background_lives(sandbox: SandboxLike) -> None:
    await printed(sandbox, "(while :; do sleep 0.05; date >beat; done) >/dev/null 2>&1 &")
    await printed(sandbox, "setsid sleep 7040 >/dev/null 2>&1 &")
    expect((await sandbox.run(SURVIVORS, timeout=0.7)).timed_out, "timed_out is False")
    await none_survive(sandbox, 7001, 7005)
    expect(await is_alive(sandbox, 7040), "sleep 7040 died with a later command")
    await printed(sandbox, "rm -f beat; sleep 1; test -e beat")


@demand("timeouts", "a command that runs at the same time is spared, whichever started first")
async def others_live(sandbox: SandboxLike) -> None:
    results: list[CommandResult] = []

    async def other() -> None:
        command = "(sleep 1.2; echo late) & wait; exit 6"
        results.append(await sandbox.run(command, timeout=STEP))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.sleep(0.1)
        tasks.start_soon(lambda: sandbox.run(SURVIVORS, timeout=0.5))
        await anyio.sleep(0.2)
        tasks.start_soon(other)
    same("answers", [(each.exit_code, each.stdout.head) for each in results], [(6, b"late\n")] * 2)


@demand("timeouts", "the sandbox goes on after a time-out, at once")
async def goes_on(sandbox: SandboxLike) -> None:
    for _ in range(3):
        await sandbox.run(SURVIVORS, timeout=0.3)
        started = anyio.current_time()
        same("stdout", await printed(sandbox, "echo fine"), "fine\n")
        expect(anyio.current_time() - started < 2, "the next command took over 2 s")
