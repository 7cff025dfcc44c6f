"""Checks of output: whole where it is short, bounded where it is long, never broken."""

from __future__ import annotations

import resource

from .contract import SandboxLike
from .expect import STEP, demand, expect, same

FLOOD = 256 << 20  # bytes


@demand("output", "binary output and broken UTF-8 come through byte for byte")
async def binary_output(sandbox: SandboxLike) -> None:
    blob = bytes(range(256)) * 8
    await sandbox.write("blob", blob)
    done = await sandbox.run("cat blob; cat blob >&2", timeout=STEP)
    same("stdout", done.stdout.head + done.stdout.tail, blob)
    same("stderr", done.stderr.head + done.stderr.tail, blob)
    expect("\\xff" in done.stdout.text(), "text() does not show the byte ff as \\xff")


@demand("output", "newlines stay as they are: there is no terminal")
async def no_terminal(sandbox: SandboxLike) -> None:
    done = await sandbox.run("printf 'a\\nb\\r\\n'; test -t 1 || printf pipe", timeout=STEP)
    same("stdout", done.stdout.head, b"a\nb\r\npipe")


@demand("output", "of long output head and tail are kept, and what was dropped is counted")
async def bounded_output(sandbox: SandboxLike) -> None:
    command = "printf first; head -c 3000000 /dev/zero; printf last"
    done = await sandbox.run(command, timeout=STEP, output_limit=1000)
    out = done.stdout
    expect(out.head.startswith(b"first") and out.tail.endswith(b"last"), "head or tail is wrong")
    expect(len(out.head) + len(out.tail) <= 1000, f"{len(out.head)} + {len(out.tail)} bytes kept")
    same("kept and dropped", len(out.head) + len(out.tail) + out.dropped, 3_000_009)
    expect("output" in done.limits_hit, f"limits_hit is {done.limits_hit}, without output")
    same("ok", done.ok, True)
    expect(f"{out.dropped} bytes dropped" in out.text(), "text() does not mark the cut")


@demand("output", "the limit is each stream's own")
async def streams_are_bounded_apart(sandbox: SandboxLike) -> None:
    command = "head -c 500000 /dev/zero; printf short >&2"
    done = await sandbox.run(command, timeout=STEP, output_limit=100)
    same("stderr", (done.stderr.head, done.stderr.dropped), (b"short", 0))
    expect(done.stdout.dropped >= 499_900, f"{done.stdout.dropped} bytes of stdout dropped")


@demand("output", "output up to the limit is whole, and names no limit")
async def nothing_dropped_early(sandbox: SandboxLike) -> None:
    done = await sandbox.run("seq 10000 99999 | head -c 4000", timeout=STEP, output_limit=4000)
    kept = done.stdout.head + done.stdout.tail
    wanted = "".join(f"{number}\n" for number in range(10000, 11000))[:4000].encode()
    same("stdout", kept, wanted)
    same("dropped and limits_hit", (done.stdout.dropped, done.limits_hit), (0, ()))


@demand("output", "what was printed just before the end is there")
async def last_words(sandbox: SandboxLike) -> None:
    for _ in range(5):
        done = await sandbox.run("head -c 60000 /dev/zero; printf end; kill -9 $$", timeout=STEP)
        same("bytes", len(done.stdout.head + done.stdout.tail), 60_003)


@demand("output", "a flood of 256 MiB costs less than 100 MiB of the caller's memory")
async def flood(sandbox: SandboxLike) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = await sandbox.run(["head", "-c", str(FLOOD), "/dev/zero"], timeout=120)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    same("exit_code, timed_out", (done.exit_code, done.timed_out), (0, False))
    kept = len(done.stdout.head) + len(done.stdout.tail)
    same("kept and dropped", kept + done.stdout.dropped, FLOOD)
    expect(grown < 100, f"the caller grew by {grown} MiB")


@demand("output", "no output is no output: empty streams, nothing dropped")
async def silence(sandbox: SandboxLike) -> None:
    done = await sandbox.run(["true"], timeout=STEP)
    for stream in (done.stdout, done.stderr):
        same("stream", (stream.head, stream.tail, stream.dropped), (b"", b"", 0))
