"""Checks of limits: memory, processes and disk end where they must, and say so.

The back end must be set up with less than 512 MiB of memory, 256 processes, and 256 MiB of disk.
"""

from __future__ import annotations

import anyio

from .contract import SandboxLike
from .expect import STEP, demand, expect, printed, refusal, same

HOG = "head -c 1073741824 /dev/zero | tail"
"""Holds a gibibyte: tail keeps the last line, and there is only one."""
CROWD = "for i in $(seq 600); do sleep 5 & done; wait"


@demand("limits", "too much memory is named, and only in the command that took it")
async def memory(sandbox: SandboxLike) -> None:
    done = await sandbox.run(HOG, timeout=60)
    expect(done.oom_killed, f"a gibibyte was granted: exit_code {done.exit_code}")
    expect("memory" in done.limits_hit, f"limits_hit is {done.limits_hit}, without memory")
    after = await sandbox.run("echo fine", timeout=STEP)
    same("afterwards", (after.stdout.text(), after.oom_killed, after.limits_hit),
         ("fine\n", False, ()))  # fmt: skip


@demand("limits", "many hogs at once don't take the sandbox down")
async def many_hogs(sandbox: SandboxLike) -> None:
    hogs = f"for i in 1 2 3 4 5 6; do ({HOG}) & done; wait"
    expect((await sandbox.run(hogs, timeout=60)).oom_killed, "six gibibytes were granted")
    same("afterwards", await printed(sandbox, "echo fine"), "fine\n")


@demand("limits", "the peak of memory is measured, in bytes")
async def peak_memory(sandbox: SandboxLike) -> None:
    small = (await sandbox.run(["true"], timeout=STEP)).peak_memory
    large = (await sandbox.run("head -c 40000000 /dev/zero | tail", timeout=STEP)).peak_memory
    if small is None or large is None:
        expect(small is large, "it is measured sometimes only")
        return
    expect(large - small > 20_000_000, f"40 MB raised the peak from {small} to {large}")


async def _see_that_processes_are_limited(sandbox: SandboxLike) -> None:
    done = await sandbox.run(CROWD, timeout=2.0)
    expect("pids" in done.limits_hit, f"600 processes were granted: {done.limits_hit}")


@demand("limits", "too many processes are stopped and named")
async def processes(sandbox: SandboxLike) -> None:
    await _see_that_processes_are_limited(sandbox)
    after = await sandbox.run("echo fine", timeout=STEP)
    same("afterwards", (after.stdout.text(), after.limits_hit), ("fine\n", ()))


@demand("limits", "a fork bomb ends at its limit, within a second, and the next command is prompt")
async def fork_bomb(sandbox: SandboxLike) -> None:
    await _see_that_processes_are_limited(sandbox)  # nothing explodes where there is no limit
    started = anyio.current_time()
    done = await sandbox.run("b() { b | b & }; b; sleep 60", timeout=1.0)
    took = anyio.current_time() - started
    expect(done.timed_out and "pids" in done.limits_hit, f"limits_hit is {done.limits_hit}")
    expect(took < 2.5, f"the answer took {took:.1f} s")
    started = anyio.current_time()
    same("afterwards", await printed(sandbox, "echo fine"), "fine\n")
    expect(anyio.current_time() - started < 2, "the next command took over 2 s")


@demand("limits", "a fork bomb beside a background command ends too")
async def fork_bomb_in_company(sandbox: SandboxLike) -> None:
    await _see_that_processes_are_limited(sandbox)
    await sandbox.start(["sleep", "600"])
    done = await sandbox.run("b() { b | b & }; b; sleep 60", timeout=1.0)
    expect(done.timed_out, "timed_out is False")
    with anyio.fail_after(STEP):
        same("afterwards", await printed(sandbox, "echo fine"), "fine\n")


@demand("limits", "a full workdir is named, and room comes back")
async def disk(sandbox: SandboxLike) -> None:
    done = await sandbox.run("head -c 1073741824 /dev/zero >big", timeout=60)
    expect(not done.ok and not done.oom_killed, f"a gibibyte was granted: {done.exit_code}")
    expect("disk" in done.limits_hit, f"limits_hit is {done.limits_hit}, without disk")
    after = await sandbox.run("rm big; echo fine >f; cat f", timeout=STEP)
    same("afterwards", (after.stdout.text(), after.limits_hit), ("fine\n", ()))


@demand("limits", "/tmp, the home folder and /dev/shm are limited too")
async def other_disks(sandbox: SandboxLike) -> None:
    for place in ("/tmp", "$HOME", "/dev/shm"):
        command = f'head -c 1073741824 /dev/zero >"{place}/big"; x=$?; rm -f "{place}/big"; exit $x'
        done = await sandbox.run(command, timeout=60)
        expect(not done.ok, f"a gibibyte in {place} was granted")
    same("afterwards", await printed(sandbox, "echo fine >f; cat f"), "fine\n")


@demand("limits", "what is written or uploaded past the disk's limit raises SandboxUsageError")
async def too_large_a_file(sandbox: SandboxLike) -> None:
    piece = bytes(1 << 20)
    await sandbox.run("head -c 1073741824 /dev/zero >big", timeout=60)
    with refusal("write() to a full disk"):
        await sandbox.write("more", piece)
    await printed(sandbox, "rm -f big more")
    await sandbox.write("more", piece)
    same("afterwards", len(await sandbox.read("more")), len(piece))
