"""Checks of streams: output as it comes, stdin as it is needed, and who waits for whom."""

from __future__ import annotations

import hashlib

import anyio

from .contract import ProcessLike, SandboxLike
from .expect import STEP, demand, expect, printed, refusal, same


async def gathered(process: ProcessLike) -> dict[str, bytes]:
    """All output, by stream."""
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async for name, data in process.output():
        parts[name].append(data)
    return {name: b"".join(pieces) for name, pieces in parts.items()}


@demand("streams", "output can be read while the command runs")
async def output_as_it_comes(sandbox: SandboxLike) -> None:
    process = await sandbox.start("echo ready; read x; echo got $x", stream=True, stdin_open=True)
    seen = b""
    with anyio.fail_after(STEP):
        async for _, data in process.output():
            seen += data
            if seen == b"ready\n":
                await process.write(b"word\n")
    same("stdout", seen, b"ready\ngot word\n")
    same("exit_code", (await process.wait()).exit_code, 0)


@demand("streams", "stdout and stderr are told apart as they come, and are in the result too")
async def streams_apart(sandbox: SandboxLike) -> None:
    process = await sandbox.start("echo a; echo b >&2; echo c; echo d >&2", stream=True)
    same("streams", await gathered(process), {"stdout": b"a\nc\n", "stderr": b"b\nd\n"})
    done = await process.wait()
    same("result", (done.stdout.head, done.stderr.head), (b"a\nc\n", b"b\nd\n"))


@demand("streams", "no byte of a long stream is lost or changed")
async def whole_stream(sandbox: SandboxLike) -> None:
    process = await sandbox.start("seq 1 700000", stream=True, output_limit=100)
    text = (await gathered(process))["stdout"]
    wanted = "".join(f"{number}\n" for number in range(1, 700_001)).encode()
    same("bytes", len(text), len(wanted))
    same("digest", hashlib.sha256(text).digest(), hashlib.sha256(wanted).digest())


@demand("streams", "a reader that waits makes the command wait, and loses nothing")
async def backpressure(sandbox: SandboxLike) -> None:
    size = 64 << 20
    process = await sandbox.start(
        f"head -c {size} /dev/zero; touch written", stream=True, output_limit=100
    )
    done = await sandbox.run("sleep 1.5; test -e written", timeout=STEP)
    expect(done.exit_code == 1, "64 MiB that nobody read were written all the same")
    total = 0
    with anyio.fail_after(60):
        async for _, data in process.output():
            total += len(data)
    same("bytes", total, size)
    await printed(sandbox, "test -e written")


@demand("streams", "an unread stream does not hold up other commands")
async def stalled_reader(sandbox: SandboxLike) -> None:
    async with await sandbox.start(["cat", "/dev/zero"], stream=True):
        for number in range(5):
            same("stdout", await printed(sandbox, f"echo {number}"), f"{number}\n")


@demand("streams", "a command that waits for its reader is ended at its limit")
async def stalled_until_its_limit(sandbox: SandboxLike) -> None:
    process = await sandbox.start(["cat", "/dev/zero"], stream=True, timeout=0.7)
    await anyio.sleep(1.0)
    with anyio.fail_after(STEP):
        done = await process.wait()
    expect(done.timed_out, "timed_out is False")


@demand("streams", "stdin that stays open takes more, until it is closed")
async def open_stdin(sandbox: SandboxLike) -> None:
    process = await sandbox.start(["cat"], stdin=b"first ", stdin_open=True)
    await process.write(b"second \x00\xff ")
    await process.write(b"third")
    await process.close_stdin()
    done = await process.wait()
    same("stdout", done.stdout.head, b"first second \x00\xff third")
    same("exit_code", done.exit_code, 0)


@demand("streams", "stdin that is given and closed at once is neither lost nor fatal")
async def stdin_closed_at_once(sandbox: SandboxLike) -> None:
    for _ in range(40):
        process = await sandbox.start(["cat"], stdin=b"x", stdin_open=True)
        await process.close_stdin()
        same("stdout", (await process.wait()).stdout.head, b"x")


@demand("streams", "long stdin arrives whole")
async def long_stdin(sandbox: SandboxLike) -> None:
    data = bytes(range(256)) * (9 << 12)
    process = await sandbox.start(["sha256sum"], stdin_open=True)
    await process.write(data)
    await process.close_stdin()
    text = (await process.wait()).stdout.text()
    same("sha256sum", text.split()[:1], [hashlib.sha256(data).hexdigest()])


@demand("streams", "write() waits for a command that does not read, and can be given up")
async def unread_input(sandbox: SandboxLike) -> None:
    process = await sandbox.start(["sleep", "60"], stdin_open=True)
    with anyio.move_on_after(0.7) as scope:
        await process.write(b"x" * (2 << 20))
    expect(scope.cancelled_caught, "2 MiB that nobody read were taken")
    same("meanwhile", await printed(sandbox, "echo fine"), "fine\n")
    await process.kill()


@demand("streams", "writing to a command that has ended, or does not read, is the caller's mistake")
async def write_to_the_dead(sandbox: SandboxLike) -> None:
    ended = await sandbox.start(["true"], stdin_open=True)
    await ended.wait()
    with refusal("write() after the end"):
        await ended.write(b"x")
    deaf = await sandbox.start("exec <&-; sleep 60", stdin_open=True)
    await printed(sandbox, "sleep 0.5")
    with refusal("write() to a closed stdin"):
        await deaf.write(b"x")
    await deaf.kill()
    closed = await sandbox.start(["sleep", "60"])
    with refusal("write() without stdin_open"):
        await closed.write(b"x")
    await closed.kill()
