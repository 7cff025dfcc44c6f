"""The three kinds of PID 1, in images with and without what they need."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import docker
import pytest
from docker_hosts import need

from patchgym.sandbox import (
    EngineUnavailable,
    ImageError,
    Pool,
    Sandbox,
    SandboxLost,
    SandboxSpec,
    SandboxUnavailable,
    SandboxUsageError,
    ensure_base,
)
from patchgym.sandbox.supervised import static_program

WAIT = 120.0
pytestmark = pytest.mark.docker


def import_image(tag: str, files: dict[str, bytes]) -> str:
    """An image that holds these files and nothing else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.size = 0o755, len(data)
            archive.addfile(member, io.BytesIO(data))
    client = docker.APIClient()
    client.import_image_from_data(buffer.getvalue(), repository=tag.split(":")[0], tag="test")
    client.close()
    return tag


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """An image with one static program: no shell, no Python, no libraries."""
    program = static_program("amd64") or static_program("arm64")
    assert program, "the static supervisor is built with the package: run scripts/setup.sh"
    yield import_image("patchgym-test-bare:test", {"hello": program})


@pytest.fixture(scope="module")
def shell_only() -> Iterator[str]:
    """An image with busybox alone."""
    busybox = Path(need("busybox", "busybox-static")).read_bytes()
    links = ("sh", "cat", "tail", "head", "test", "mkdir", "sleep", "echo", "kill", "id", "ls")
    yield import_image("patchgym-test-shell:test", {f"bin/{name}": busybox for name in links})


@pytest.fixture
async def in_bare(spec: SandboxSpec, bare: str) -> AsyncIterator[Sandbox]:
    """A sandbox of the bare image."""
    async with Pool(replace(spec, image=bare), size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        yield sandbox


@pytest.fixture
async def in_shell(spec: SandboxSpec, shell_only: str) -> AsyncIterator[Sandbox]:
    """A sandbox whose PID 1 is a shell."""
    wanted = replace(spec, image=shell_only, supervisor="shell")
    async with Pool(wanted, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        yield sandbox


async def test_an_image_without_anything(in_bare: Sandbox) -> None:
    done = await in_bare.run(["/hello"], timeout=20)
    assert done.ok and b"static" in done.stdout.head  # it greets, and ends with its stdin
    no_shell = await in_bare.run("true", timeout=20)
    assert no_shell.exit_code == 127 and "/bin/sh" in no_shell.stderr.text()
    await in_bare.write("a/b", b"data", mode=0o600)
    assert await in_bare.read("/workspace/a/b") == b"data"
    with pytest.raises(SandboxUsageError, match="could not pack"):
        await in_bare.download("a", Path("/nowhere"))


@pytest.mark.slow
async def test_bullseye(spec: SandboxSpec) -> None:
    image = await ensure_base("bullseye")
    for supervisor in ("static", "python"):
        wanted = replace(spec, image=image, supervisor=supervisor)
        async with Pool(wanted, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
            version = await sandbox.run(["python3", "-c", "import pytest; print('ok')"], timeout=60)
            assert version.stdout.head == b"ok\n", version
            late = await sandbox.run("sleep 71 & setsid sleep 72 & sleep 73", timeout=0.5)
            assert late.timed_out and late.killed >= 3


async def test_a_shell_does_what_it_can(in_shell: Sandbox) -> None:
    done = await in_shell.run("cat; echo err >&2; exit 3", timeout=20, stdin=b"in\xff")
    assert (done.exit_code, done.stdout.head, done.stderr.head) == (3, b"in\xff", b"err\n")
    assert (await in_shell.run("kill -SEGV $$", timeout=20)).signal == 11
    who = await in_shell.run(
        ["sh", "-c", 'id -u; echo "$X $1"; ls', "sh", "a b"], timeout=20, environment={"X": "y"}
    )
    assert who.stdout.text() == "1000\ny a b\n"
    blob = bytes(range(256)) * 20_000  # more than a piece
    await in_shell.write("some where/blob", blob)
    assert await in_shell.read("some where/blob") == blob
    big = await in_shell.run(["head", "-c", "3000000", "/dev/zero"], timeout=20, output_limit=100)
    assert len(big.stdout.head) == 50 and big.stdout.dropped == 3_000_000 - 100
    late = await in_shell.run("sleep 71 & sleep 72", timeout=1.0)
    assert late.timed_out and late.exit_code is None and late.limits_hit == ("time",)
    rest = await in_shell.run("cat /proc/[0-9]*/cmdline", timeout=20)
    assert b"sleep" not in rest.stdout.head
    for wrong in (
        in_shell.read("missing"),
        in_shell.start("true"),
        in_shell.run("true", timeout=5, report=True),
    ):
        with pytest.raises(SandboxUsageError):
            await wrong


async def test_a_dead_shell_is_lost(spec: SandboxSpec, shell_only: str) -> None:
    wanted = replace(spec, image=shell_only, supervisor="shell")
    async with Pool(wanted, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        await pool.engines[0].kill(sandbox.name)
        with pytest.raises(SandboxLost):
            await sandbox.run("true", timeout=20)


async def test_what_can_not_be_is_told(spec: SandboxSpec, bare: str) -> None:
    wanted = replace(spec, image=bare, supervisor="python")
    async with Pool(wanted, size=1) as pool:
        with pytest.raises(SandboxUnavailable, match="python3"):
            async with pool.lease(timeout=WAIT):
                pass


async def test_another_user(spec: SandboxSpec) -> None:
    wanted = replace(spec, switch_user=True)
    for supervisor in ("static", "python"):
        async with Pool(replace(wanted, supervisor=supervisor), size=1) as pool:
            async with pool.lease(timeout=WAIT) as sandbox:
                me = await sandbox.run("id -u; grep CapEff /proc/self/status", timeout=20)
                assert me.stdout.text().split() == ["1000", "CapEff:", "0000000000000000"]
                await sandbox.write("mine", b"x")
                owner = await sandbox.run("stat -c %u mine; touch theirs", timeout=20)
                assert owner.stdout.text() == "1000\n" and owner.ok
                root = await sandbox.run("id -u", timeout=20, user="0:0")
                other = await sandbox.run("id -u; id -g", timeout=20, user="7:8")
                assert root.stdout.text() == "0\n" and other.stdout.text() == "7\n8\n"
                late = await sandbox.run("sleep 71 & sleep 72", timeout=0.5, user="7:8")
                assert late.timed_out and late.killed >= 2
                with pytest.raises(SandboxUsageError, match="numeric uid:gid"):
                    await sandbox.run("true", timeout=5, user="root")
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        with pytest.raises(SandboxUsageError, match="switch_user"):
            await sandbox.run("true", timeout=5, user="0:0")


async def test_one_pool_serves_many_images(spec: SandboxSpec, bare: str, shell_only: str) -> None:
    hello = ["/hello"]
    async with Pool(spec, size=2) as pool:
        async with pool.lease(timeout=WAIT, image=bare) as first:
            assert (await first.run(hello, timeout=20)).ok
            async with pool.lease(timeout=WAIT) as second:  # the spec's own, beside it
                assert (await second.run("python3 -V", timeout=20)).ok
        pool.expect([shell_only, shell_only])
        with anyio.fail_after(WAIT):
            while pool.statistics().ready < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        async with pool.lease(timeout=0, image=shell_only) as third:  # it was warmed in advance
            assert (await third.run(["/bin/echo"], timeout=20)).ok
        with pytest.raises(ImageError, match="no local image no/such:image"):
            async with pool.lease(timeout=WAIT, image="no/such:image"):
                pass
        async with anyio.create_task_group() as tasks:
            async with pool.lease(timeout=WAIT, image=bare):
                tasks.start_soon(pool.drain)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(EngineUnavailable, match="closed"):
                    async with pool.lease(timeout=1):
                        pass
