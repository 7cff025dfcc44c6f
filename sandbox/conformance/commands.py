"""Checks of commands: how they start, what they get, how they end."""

from __future__ import annotations

import os
import secrets

import anyio

from patchgym.sandbox import CommandResult

from .contract import Backend, SandboxLike
from .expect import LEASE_LIMIT, STEP, demand, demand_of_backend, expect, printed, refusal, same

MEBIBYTE = bytes(range(256)) * 4096


@demand("commands", "an exit status is a result, with stdout and stderr apart")
async def exit_status(sandbox: SandboxLike) -> None:
    for status in (0, 1, 3, 255):
        done = await sandbox.run(f"echo out; echo err >&2; exit {status}", timeout=STEP)
        same("exit_code", done.exit_code, status)
        same("ok", done.ok, status == 0)
        same("signal, timed_out", (done.signal, done.timed_out), (None, False))
        same("stdout", done.stdout.head, b"out\n")
        same("stderr", done.stderr.head, b"err\n")


@demand("commands", "a signal that ended a command is named, and is no exit status")
async def signals_are_named(sandbox: SandboxLike) -> None:
    for number in (6, 9, 11):
        done = await sandbox.run(f"kill -{number} $$", timeout=STEP)
        same("exit_code and signal", (done.exit_code, done.signal), (None, number))
        same("timed_out and ok", (done.timed_out, done.ok), (False, False))


@demand("commands", "a status above 128 that a command chose is a status, not a signal")
async def high_exit_status(sandbox: SandboxLike) -> None:
    done = await sandbox.run("exit 137", timeout=STEP)
    same("exit_code and signal", (done.exit_code, done.signal), (137, None))


@demand("commands", "a program that is not there is a result with status 127 and a message")
async def missing_program(sandbox: SandboxLike) -> None:
    done = await sandbox.run(["no-such-program"], timeout=STEP)
    same("exit_code", done.exit_code, 127)
    expect("not found" in done.stderr.text(), "stderr does not say that it was not found")


@demand("commands", "a file that can't be executed is a result with status 126")
async def not_executable(sandbox: SandboxLike) -> None:
    await sandbox.write("plain", b"no program\n", mode=0o644)
    done = await sandbox.run(["./plain"], timeout=STEP)
    same("exit_code", done.exit_code, 126)


@demand("commands", "a folder that is not there is a failing result, never another folder")
async def missing_folder(sandbox: SandboxLike) -> None:
    done = await sandbox.run("pwd", timeout=STEP, cwd="no/such/folder")
    same("exit_code", done.exit_code, 127)
    same("stdout", done.stdout.head, b"")


@demand("commands", "the words of a sequence arrive as they are, without a shell")
async def words_are_not_parsed(sandbox: SandboxLike) -> None:
    words = ["a b", "$HOME", "*", "", "'", "ä☃", "-n", "x\ny"]
    done = await sandbox.run(["printf", "%s|", *words], timeout=STEP)
    same("stdout", done.stdout.head.decode(), "|".join(words) + "|")


@demand("commands", "a string goes to a shell: pipes, variables and several lines work")
async def strings_go_to_a_shell(sandbox: SandboxLike) -> None:
    text = await printed(sandbox, "x=5\nfor i in 1 2 3; do echo $((i + x)); done | tail -n 1")
    same("stdout", text, "8\n")


@demand("commands", "commands start in the workdir, or in a folder relative to it")
async def folders(sandbox: SandboxLike) -> None:
    workdir = (await printed(sandbox, "mkdir -p in/ner; pwd")).strip()
    expect(workdir not in ("", "/", "/tmp"), f"the workdir is {workdir!r}")
    inner = await sandbox.run(["pwd"], timeout=STEP, cwd="in/ner")
    same("relative folder", inner.stdout.text().strip(), f"{workdir}/in/ner")
    absolute = await sandbox.run(["pwd"], timeout=STEP, cwd="/usr")
    same("absolute folder", absolute.stdout.text().strip(), "/usr")


@demand("commands", "the home folder exists, can be written to, and is not the workdir")
async def home(sandbox: SandboxLike) -> None:
    text = await printed(sandbox, 'touch "$HOME/x" && cd "$HOME" && pwd && cd - >/dev/null && pwd')
    places = text.split()
    same("number of lines", len(places), 2)
    expect(places[0] != places[1], f"both are {places[0]}")


@demand("commands", "variables reach the command that they were given to, and no other")
async def environment(sandbox: SandboxLike) -> None:
    variables = {"X": "a b=c", "EMPTY": "", "MANY": "one\ntwo"}
    show = 'printf "%s|%s|%s" "$X" "${EMPTY-unset}" "$MANY"'
    done = await sandbox.run(show, timeout=STEP, environment=variables)
    same("with variables", done.stdout.head, b"a b=c||one\ntwo")
    same("without", await printed(sandbox, show), "|unset|")


@demand("commands", "time zone, language and hash seed are fixed: UTC, UTF-8, 0")
async def steady_environment(sandbox: SandboxLike) -> None:
    same("they", await printed(sandbox, 'echo "$TZ $LANG $PYTHONHASHSEED"'), "UTC C.UTF-8 0\n")


@demand_of_backend("commands", "nothing of the caller's own environment reaches a command")
async def foreign_environment(backend: Backend) -> None:
    name, value = "PATCHGYM_CONFORMANCE_KEY", secrets.token_hex(8)
    os.environ[name] = value
    try:
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            seen = await printed(sandbox, "env")
    finally:
        del os.environ[name]
    expect(value not in seen, "a variable of the caller's process is in `env`")


@demand("commands", "commands share no shell: a folder, a variable or a limit of one ends with it")
async def no_shared_shell(sandbox: SandboxLike) -> None:
    before = await printed(sandbox, "pwd; umask; ulimit -n")
    await printed(sandbox, "cd /; export X=1; umask 077; ulimit -n 20; alias ls=false")
    same("after", await printed(sandbox, "pwd; umask; ulimit -n"), before)
    same("X", await printed(sandbox, 'echo "${X-unset}"'), "unset\n")


@demand("commands", "stdin arrives byte for byte and ends")
async def stdin(sandbox: SandboxLike) -> None:
    done = await sandbox.run(["cat"], timeout=STEP, stdin=b"\x00\xff\r\n\x1a" * 3)
    same("stdout", done.stdout.head, b"\x00\xff\r\n\x1a" * 3)
    counted = await sandbox.run(["wc", "-c"], timeout=STEP, stdin=MEBIBYTE)
    same("wc -c", counted.stdout.text().strip(), str(len(MEBIBYTE)))


@demand("commands", "without stdin given, a command that reads it sees its end at once")
async def no_stdin(sandbox: SandboxLike) -> None:
    done = await sandbox.run(["cat"], timeout=10)
    same("exit_code, stdout", (done.exit_code, done.stdout.head), (0, b""))


@demand("commands", "a command that does not read its stdin ends all the same")
async def unread_stdin(sandbox: SandboxLike) -> None:
    done = await sandbox.run("exec true", timeout=STEP, stdin=MEBIBYTE)
    same("exit_code", done.exit_code, 0)


@demand("commands", "orphans that die meanwhile don't take a command's exit status along")
async def orphans_keep_off(sandbox: SandboxLike) -> None:
    orphans = "for i in $(seq 20); do (sleep 0.01 &) ; done; sleep 0.05; exit 9"
    for _ in range(3):
        same("exit_code", (await sandbox.run(orphans, timeout=STEP)).exit_code, 9)


@demand("commands", "dead orphans are collected: no zombie remains")
async def no_zombies(sandbox: SandboxLike) -> None:
    await printed(sandbox, "for i in $(seq 30); do (true &) ; done; sleep 0.2")
    count = (
        "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | xargs -r grep -l '^Uid:.'$(id -u)"
    )
    found = await printed(sandbox, f"sleep 0.2; {count} | wc -l; true")
    expect(int(found) < 10, f"{found.strip()} zombies after 30 orphans")


@demand("commands", "a background process that holds stdout open does not hold the answer up")
async def held_output(sandbox: SandboxLike) -> None:
    started = anyio.current_time()
    done = await sandbox.run("sleep 7010 & echo done; exit 5", timeout=20)
    same("exit_code, stdout", (done.exit_code, done.stdout.head), (5, b"done\n"))
    expect(anyio.current_time() - started < 5, "the answer took more than 5 s")


@demand("commands", "commands run at the same time, and each gets its own answer")
async def concurrent_commands(sandbox: SandboxLike) -> None:
    results: dict[int, CommandResult] = {}

    async def one(number: int) -> None:
        results[number] = await sandbox.run(f"sleep 1; echo {number}; exit {number}", timeout=STEP)

    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(one, number)
    got = {number: (each.exit_code, each.stdout.text()) for number, each in results.items()}
    same("answers", got, {number: (number, f"{number}\n") for number in range(16)})
    expect(anyio.current_time() - started < 12, "16 sleeps of a second took over 12 s")


@demand("commands", "duration and CPU time are measured, in seconds")
async def measures(sandbox: SandboxLike) -> None:
    slept = await sandbox.run(["sleep", "0.5"], timeout=STEP)
    expect(0.45 < slept.duration < 5, f"half a second of sleep has duration {slept.duration}")
    busy = await sandbox.run("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done", timeout=STEP)
    used = busy.cpu_seconds
    expect(0.05 < used < 25, f"{busy.duration:.2f} s of counting used {used} CPU seconds")
    expect(slept.cpu_seconds < used, f"sleep used {slept.cpu_seconds}, counting {used}")


@demand("commands", "a report comes apart from the output, and only when it was asked for")
async def report(sandbox: SandboxLike) -> None:
    tell = 'echo shown; printf "told\\0\\377" >&"$PATCHGYM_REPORT_FD"'
    done = await sandbox.run(tell, timeout=STEP, report=True)
    same("report and stdout", (done.report, done.stdout.head), (b"told\0\xff", b"shown\n"))
    without = await sandbox.run('test -z "$PATCHGYM_REPORT_FD" && ! true >&3', timeout=STEP)
    expect(without.ok, "descriptor 3 is open in a command without a report")


@demand("commands", "a caller's mistake raises SandboxUsageError and costs nothing")
async def mistakes_raise(sandbox: SandboxLike) -> None:
    with refusal("no words"):
        await sandbox.run([], timeout=1)
    for timeout in (0.0, -1.0):
        with refusal(f"timeout={timeout}"):
            await sandbox.run("true", timeout=timeout)
    with refusal("a zero byte"):
        await sandbox.run("echo a\0b", timeout=1)
    with refusal("a user by name"):
        await sandbox.run("true", timeout=1, user="root")
    same("afterwards", await printed(sandbox, "echo fine"), "fine\n")


@demand("commands", "some hundred commands in a row work, and leave no descriptor open")
async def many_in_a_row(sandbox: SandboxLike) -> None:
    # a shell opens its own folder to list it: what counts is that it does not grow
    first = await printed(sandbox, "ls /proc/self/fd | wc -l")
    for number in range(150):
        done = await sandbox.run(["echo", str(number)], timeout=STEP)
        same("stdout", done.stdout.head, b"%d\n" % number)
    same("open descriptors", await printed(sandbox, "ls /proc/self/fd | wc -l"), first)
