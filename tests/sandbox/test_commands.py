"""Commands in a real container: exits, signals, limits, output, cancellation."""

from __future__ import annotations

import anyio
import pytest

from patchgym.sandbox import CommandResult, Sandbox, SandboxLost, SandboxUsageError

pytestmark = pytest.mark.docker

SURVIVORS = """
sleep 7001 &
setsid sleep 7002 &
(setsid sleep 7003 >/dev/null 2>&1 </dev/null &)
python3 -c 'import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(7004)' &
trap '' HUP
exec sleep 7005
"""
COMMAND_LINES = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null"


async def text(sandbox: Sandbox, command: str) -> str:
    """What a command prints."""
    return (await sandbox.run(command, timeout=30)).stdout.text()


async def test_ends(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo out; echo err >&2; exit 3", timeout=10)
    assert (done.exit_code, done.signal, done.ok) == (3, None, False)
    assert (done.stdout.head, done.stderr.head) == (b"out\n", b"err\n")
    assert done.duration > 0 and done.cpu_seconds > 0 and done.peak_memory
    killed = await sandbox.run("kill -SEGV $$", timeout=10)
    assert (killed.exit_code, killed.signal) == (None, 11)
    missing = await sandbox.run(["no-such-program"], timeout=10)
    assert missing.exit_code == 127 and "not found" in missing.stderr.text()
    forbidden = await sandbox.run(["/etc/passwd"], timeout=10)
    assert forbidden.exit_code == 126
    assert (await sandbox.run(["true"], timeout=10, cwd="/no/such")).exit_code == 127


async def test_exit_status_survives_strangers_dying(sandbox: Sandbox) -> None:
    """Orphans that die meanwhile are reaped without taking the command's status along."""
    orphans = "for i in $(seq 20); do (sleep 0.01 &) ; done; sleep 0.05; exit 9"
    for _ in range(3):
        assert (await sandbox.run(orphans, timeout=20)).exit_code == 9


async def test_environment_folder_stdin(sandbox: Sandbox) -> None:
    await sandbox.run("mkdir inner", timeout=10)
    done = await sandbox.run(
        'pwd; echo "$TZ $LANG $PYTHONHASHSEED $HOME $X"; cat',
        timeout=10, cwd="inner", environment={"X": "a b=c"}, stdin=b"\x00\xff" * 3,
    )  # fmt: skip
    expected = b"/workspace/inner\nUTC C.UTF-8 0 /home/agent a b=c\n" + b"\x00\xff" * 3
    assert done.stdout.head == expected
    large = b"0123456789abcdef" * (1 << 16)
    counted = await sandbox.run(["wc", "-c"], timeout=20, stdin=large)
    assert int(counted.stdout.text()) == len(large)
    # a command that doesn't read its stdin ends all the same
    assert (await sandbox.run(["true"], timeout=20, stdin=large)).exit_code == 0


async def test_five_survivors_die(sandbox: Sandbox) -> None:
    await sandbox.run(["true"], timeout=10)
    started = anyio.current_time()
    done = await sandbox.run(SURVIVORS, timeout=1.0)
    assert anyio.current_time() - started < 2.0
    assert done.timed_out and done.limits_hit == ("time",) and done.killed == 5
    assert (done.exit_code, done.signal) == (None, None)
    assert "700" not in await text(sandbox, COMMAND_LINES)


async def test_background_of_earlier_commands_lives_on(sandbox: Sandbox) -> None:
    await sandbox.run("(while :; do sleep 0.01; done) >/dev/null 2>&1 &", timeout=10)
    await sandbox.run("setsid sleep 7100 >/dev/null 2>&1 &", timeout=10)
    done = await sandbox.run(SURVIVORS, timeout=0.5)
    assert done.timed_out
    lines = await text(sandbox, COMMAND_LINES)
    assert "sleep 7100" in lines and "while :" in lines
    assert "sleep 7001" not in lines and "sleep 7003" not in lines


async def test_fork_bomb(sandbox: Sandbox) -> None:
    started = anyio.current_time()
    done = await sandbox.run(":(){ :|:& };: ; sleep 60", timeout=1.0)
    assert anyio.current_time() - started < 2.0
    assert done.timed_out and "pids" in done.limits_hit
    assert await text(sandbox, "echo fine") == "fine\n"


async def test_output_is_bounded(sandbox: Sandbox) -> None:
    command = "echo first; head -c 200000000 /dev/zero; echo last"
    done = await sandbox.run(command, timeout=60, output_limit=1000)
    out = done.stdout
    assert out.head.startswith(b"first\n") and out.tail.endswith(b"last\n")
    assert (len(out.head), len(out.tail)) == (500, 500)
    assert out.dropped == 200_000_011 - 1000 and "output" in done.limits_hit
    assert f"[... {out.dropped} bytes dropped ...]" in out.text()
    assert done.peak_memory is not None and done.peak_memory < 64 << 20
    assert not done.oom_killed


async def test_binary_output(sandbox: Sandbox) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4)"
    done = await sandbox.run(["python3", "-c", program], timeout=10)
    assert done.stdout.head + done.stdout.tail == bytes(range(256)) * 4
    assert "\\xff" in done.stdout.text()


async def test_out_of_memory_is_named(sandbox: Sandbox) -> None:
    done = await sandbox.run(["python3", "-c", "x = b'1' * (1 << 30)"], timeout=30)
    assert done.oom_killed and "memory" in done.limits_hit and done.signal == 9
    after = await sandbox.run("echo fine", timeout=10)
    assert after.stdout.text() == "fine\n" and not after.oom_killed


async def test_many_hogs_do_not_kill_the_supervisor(sandbox: Sandbox) -> None:
    hogs = "for i in 1 2 3 4 5 6; do python3 -c 'x = b\"1\" * (1 << 29)' & done; wait"
    assert (await sandbox.run(hogs, timeout=60)).oom_killed
    assert await text(sandbox, "echo fine") == "fine\n"


async def test_a_full_disk_is_named(sandbox: Sandbox) -> None:
    done = await sandbox.run("head -c 90000000 /dev/zero > big", timeout=30)
    assert done.exit_code == 1 and "disk" in done.limits_hit and not done.oom_killed


async def test_report_comes_apart(sandbox: Sandbox) -> None:
    command = 'echo shown; echo told >&"$PATCHGYM_REPORT_FD"'
    done = await sandbox.run(command, timeout=10, report=True)
    assert (done.report, done.stdout.head) == (b"told\n", b"shown\n")
    assert (await sandbox.run("echo told >&3", timeout=10)).exit_code != 0


async def test_files(sandbox: Sandbox) -> None:
    blob = bytes(range(256)) * 40_000  # over two pieces
    await sandbox.write("a/b/blob", blob)
    assert await sandbox.read("a/b/blob") == blob
    assert await text(sandbox, "wc -c < /workspace/a/b/blob") == f"{len(blob)}\n"
    await sandbox.write("empty", b"")
    assert await sandbox.read("/workspace/empty") == b""
    for wrong in (sandbox.read("missing"), sandbox.write("/etc/x", b""), sandbox.upload(b"junk")):
        with pytest.raises(SandboxUsageError):
            await wrong
    with pytest.raises(SandboxUsageError):
        await sandbox.run([], timeout=1)


async def test_cancelled_command_is_killed_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    for _ in range(3):
        with anyio.move_on_after(0.2) as scope:
            await sandbox.run(SURVIVORS, timeout=60)
        assert scope.cancelled_caught
    assert "700" not in await text(sandbox, COMMAND_LINES)
    assert sandbox.lost is None


async def test_concurrent_requests(sandbox: Sandbox) -> None:
    results: dict[int, CommandResult] = {}

    async def one(number: int) -> None:
        results[number] = await sandbox.run(f"echo {number}", timeout=20)

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)
    assert {key: done.stdout.text() for key, done in results.items()} == {
        number: f"{number}\n" for number in range(10)
    }


async def test_supervisor_is_out_of_reach(sandbox: Sandbox) -> None:
    """No command can read, write, trace, stop or kill PID 1."""
    attempts = "kill -9 1; kill -INT 1; kill -TERM 1; kill -STOP 1; kill -USR1 1; ls /proc/1/fd"
    done = await sandbox.run(attempts, timeout=10)
    assert "Permission denied" in done.stderr.text()
    assert (await sandbox.run("cat /proc/1/environ > x; echo x > /proc/1/mem", timeout=9)).exit_code
    assert await text(sandbox, "echo fine") == "fine\n"


async def test_hardening(sandbox: Sandbox) -> None:
    facts = await text(sandbox, "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status")
    assert facts.split() == [
        "1000", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2",
    ]  # fmt: skip
    for place in ("/etc/x", "/usr/bin/x", "/x", "/dev/x", "/sys/x"):
        assert (await sandbox.run(["touch", place], timeout=10)).exit_code != 0
    connect = "import socket; socket.create_connection(('1.1.1.1', 53), 2)"
    refused = await sandbox.run(["python3", "-c", connect], timeout=10)
    assert "Network is unreachable" in refused.stderr.text()
    assert (await text(sandbox, "tail -n +3 /proc/net/dev")).split(":")[0].strip() == "lo"


async def test_a_dead_container_is_lost_not_a_result(sandbox: Sandbox) -> None:
    from patchgym.sandbox import Engine

    engine = Engine()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(SandboxLost, match="container ended"):
                await sandbox.run("sleep 60", timeout=60)

        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await engine.remove(sandbox.name)
    with pytest.raises(SandboxLost):
        await sandbox.run("true", timeout=5)
    engine.close()
