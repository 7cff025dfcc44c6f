"""The conformance suite: real back ends pass, the local fake as it claims, broken ones fail."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from patchgym.sandbox import (
    AppliedPatch,
    CommandResult,
    EngineUnavailable,
    LeaseTimeout,
    LocalPool,
    Pool,
    Sandbox,
    SandboxSpec,
    SandboxUsageError,
    run_tests,
)
from patchgym.sandbox.conformance import CAPABILITIES, CHECKS, Claiming, Report, check, report
from patchgym.sandbox.conformance.__main__ import main
from patchgym.sandbox.conformance.backends import spec as small

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
SUBSET = (
    *("exit_status", "concurrent_commands", "bounded_output", "five_survivors", "others_live"),
    *("kill", "many_at_once", "backpressure", "open_stdin", "unread_input", "write_and_read"),
    *("snapshot_has_files", "one_commit", "diff_tells_all", "refused", "use_after_the_end"),
    *("two_at_a_time", "cancelled_command", "cancelled_storm", "cancelled_lease", "left_processes"),
)
"""Checks of every kind that lean on the event loop."""


def local() -> LocalPool:
    """Two at one time."""
    return LocalPool(small("none"), size=2)


def failures(found: Report) -> dict[str, str]:
    """What failed, and why."""
    return {each.name: each.reason for each in found.having("failed")}


def test_the_suite_is_large_and_well_named() -> None:
    assert len(CHECKS) >= 60
    assert len({each.name for each in CHECKS}) == len(CHECKS)
    assert {each.capability for each in CHECKS} == set(CAPABILITIES)
    for each in CHECKS:
        assert each.demand and "\n" not in each.demand and not each.demand.endswith(".")


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("supervisor", ["static", "python"])
async def test_docker_passes_all(
    docker_image: str, supervisor: Literal["static", "python"]
) -> None:
    async with Pool(small(docker_image, supervisor), size=2) as pool:
        found = await check(Claiming(pool))
    assert failures(found) == {}
    assert len(found.having("passed")) == len(CHECKS)


@pytest.mark.docker
@BOTH
async def test_docker_on_either_event_loop(docker_image: str, anyio_backend: str) -> None:
    async with Pool(small(docker_image), size=2) as pool:
        found = await check(Claiming(pool), only=SUBSET)
    assert failures(found) == {} and len(found.having("passed")) == len(SUBSET)


@pytest.mark.slow
async def test_the_local_fake_passes_exactly_what_it_claims() -> None:
    async with local() as pool:
        found = await check(pool)
        assert failures(found) == {}
        left = {each.capability for each in found.having("not claimed")}
        assert left == {"limits", "isolation"} == set(CAPABILITIES) - set(pool.claims)


@BOTH
async def test_the_local_fake_on_either_event_loop(anyio_backend: str) -> None:
    async with local() as pool:
        found = await check(pool, only=SUBSET)
    assert failures(found) == {} and len(found.having("passed")) == len(SUBSET)


class Broken(Sandbox):
    """A local sandbox with one thing wrong, which sub-classes say."""

    def __init__(self, whole: Sandbox) -> None:
        self.__dict__ = whole.__dict__


class Backend:
    """The local fake, with sandboxes of a broken kind."""

    def __init__(self, pool: LocalPool, kind: type[Broken], claims: Collection[str]) -> None:
        self.pool, self.kind, self.claims = pool, kind, claims

    @asynccontextmanager
    async def lease(self, *, timeout: float, snapshot: Any = None) -> AsyncIterator[Sandbox]:
        async with self.pool.lease(timeout=timeout, snapshot=snapshot) as sandbox:
            yield self.kind(sandbox)


class LeavesSurvivors(Broken):
    """Answers in time, and kills nothing."""

    async def run(self, command: str | Sequence[str], *, timeout: float, **rest: Any) -> Any:
        rest.pop("report", None)
        process = await self.start(command, **rest)
        with anyio.move_on_after(timeout):
            return await process.wait()
        return replace(await self._nothing(), exit_code=None, timed_out=True, killed=5,
                       limits_hit=("time",))  # fmt: skip

    async def _nothing(self) -> CommandResult:
        return await (await self.start(["true"])).wait()


class Altered(Broken):
    """Changes every result."""

    async def run(self, *words: Any, **rest: Any) -> CommandResult:
        return self.alter(await super().run(*words, **rest))

    def alter(self, done: CommandResult) -> CommandResult:
        """What it makes of a result."""
        raise NotImplementedError


class MixesStreams(Altered):
    """As with a terminal."""

    def alter(self, done: CommandResult) -> CommandResult:
        both = replace(done.stdout, head=done.stdout.head + done.stderr.head)
        return replace(done, stdout=both, stderr=replace(done.stderr, head=b""))


class DecodesOutput(Altered):
    """Loses what is no UTF-8."""

    def alter(self, done: CommandResult) -> CommandResult:
        text = done.stdout.head.decode("utf-8", "replace").encode()
        return replace(done, stdout=replace(done.stdout, head=text))


class ForgetsDropped(Altered):
    """Cuts silently."""

    def alter(self, done: CommandResult) -> CommandResult:
        return replace(done, stdout=replace(done.stdout, dropped=0), limits_hit=())


class CallsTimeoutsExits(Altered):
    """Gives 124, as timeout(1) does."""

    def alter(self, done: CommandResult) -> CommandResult:
        return replace(done, exit_code=124) if done.timed_out else done


class ShowsTheFuture(Broken):
    """A checkout that is a clone."""

    async def checkout(self, repository: Path, commit: str) -> None:
        await super().checkout(repository, commit)
        await self.upload(repository / ".git", ".git")
        await self.run(["git", "reset", "-q", "--hard", commit], timeout=20)


class TrustsDiffs(Broken):
    """Applies what it is given, with GNU patch's manners."""

    async def apply_patch(self, diff: bytes) -> AppliedPatch:
        command = ["git", "apply", "--unsafe-paths", "--reject", "--whitespace=nowarn"]
        await self.run(command, timeout=20, stdin=diff)
        return AppliedPatch(rung="exact", paths=())


class OutlivesItsLease(Broken):
    """Never notices the end."""

    def _use(self) -> None:
        pass


class SwallowsCancellation(Broken):
    """Runs on."""

    async def run(self, *words: Any, **rest: Any) -> CommandResult:
        done: list[CommandResult] = []
        with anyio.CancelScope(shield=True):
            rest["timeout"] = min(rest["timeout"], 3.0)
            done.append(await super().run(*words, **rest))
        return done[0]


BROKEN: dict[type[Broken], set[str]] = {
    LeavesSurvivors: {"five_survivors", "scrubbed_survivor", "stopped_command"},
    MixesStreams: {"exit_status", "binary_output"},
    DecodesOutput: {"binary_output", "stdin"},
    ForgetsDropped: {"bounded_output", "flood"},
    CallsTimeoutsExits: {"time_is_named"},
    ShowsTheFuture: {"one_commit", "no_references"},
    TrustsDiffs: {"refused", "all_or_nothing", "stacked"},
    OutlivesItsLease: {"use_after_the_end"},
    SwallowsCancellation: {"cancelled_command"},
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
async def test_checks_fail_on_a_broken_back_end(kind: type[Broken]) -> None:
    async with local() as pool:
        backend = Backend(pool, kind, pool.claims)
        found = await check(backend, only={*BROKEN[kind], "words_are_not_parsed"})
    assert set(failures(found)) == BROKEN[kind], failures(found)
    assert not found.ok and [each.name for each in found.having("passed")]


async def test_a_back_end_without_a_reset_fails() -> None:
    class Reusing:
        """One sandbox for all leases."""

        claims = ("lease", "reset")

        def __init__(self, sandbox: Sandbox) -> None:
            self.sandbox = sandbox

        @asynccontextmanager
        async def lease(self, *, timeout: float, snapshot: Any = None) -> AsyncIterator[Sandbox]:
            yield self.sandbox

    missed = {"fresh_leases", "use_after_the_end", "two_at_a_time", "exceptions_pass"}
    missed |= {"tampered_home", "left_processes"}
    async with local() as pool, pool.lease(timeout=10) as sandbox:
        found = await check(Reusing(sandbox), only=missed)
    assert set(failures(found)) == missed


async def test_harmful_checks_keep_off_this_machine() -> None:
    """A back end that claims isolation and has none: nothing is tried, everything fails."""
    async with local() as pool:
        found = await check(Claiming(pool, ("limits", "isolation")))
    claimed = [each for each in CHECKS if each.capability in ("limits", "isolation")]
    assert len(failures(found)) == len(claimed)
    assert all("shares this machine's processes" in why for why in failures(found).values())


async def test_a_back_end_that_hangs_or_raises_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging:
        """Never gives a sandbox."""

        claims = ("commands",)

        @asynccontextmanager
        async def lease(self, *, timeout: float, snapshot: Any = None) -> AsyncIterator[Sandbox]:
            await anyio.sleep_forever()
            raise AssertionError
            yield

    monkeypatch.setattr(report, "CHECK_LIMIT", 0.05)
    found = await check(Hanging(), only=["exit_status"])
    assert "had not ended" in failures(found)["exit_status"]
    closed = LocalPool(small("none"))
    assert "EngineUnavailable" in failures(await check(closed, only=["stdin"]))["stdin"]
    with pytest.raises(SandboxUsageError, match="telepathy"):
        await check(Claiming(closed, ("telepathy",)))
    with pytest.raises(SandboxUsageError, match="no capability or check called 'none'"):
        await check(closed, only=["none"])


def test_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["--backend", "local", "--only", "exit_status", "--only", "memory", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert (document["ok"], document["passed"], document["not_claimed"]) == (True, 1, 1)
    assert [each["verdict"] for each in document["checks"]] == ["passed", "not claimed"]
    assert "1 passed, 0 failed, 1 not claimed" in shown.err
    assert main(["--list"]) == 0 and len(capsys.readouterr().out.splitlines()) == len(CHECKS)
    assert main(["--backend", "local", "--only", "memory"]) == 2
    for name in ("nonsense", "no_such_module:make", "json:make"):
        assert main(["--backend", name]) == 2
    (tmp_path / "closed_pool.py").write_text(
        "from contextlib import nullcontext\n"
        "from patchgym.sandbox import LocalPool, SandboxSpec\n"
        "def make(): return nullcontext(LocalPool(SandboxSpec(image='x')))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    capsys.readouterr()
    assert main(["--backend", "closed_pool:make", "--only", "stdin"]) == 1
    assert "got: EngineUnavailable: the pool is closed" in capsys.readouterr().out


@BOTH
async def test_a_local_lease_leaves_nothing(anyio_backend: str) -> None:
    async with local() as pool:
        async with pool.lease(timeout=10) as sandbox:
            made = Path((await sandbox.run("pwd", timeout=10)).stdout.text().strip()).parent
            await sandbox.run("mkdir a; touch a/b; chmod 0 a; sleep 7121 & ", timeout=10)
            await sandbox.run("setsid sleep 7122 >/dev/null 2>&1 &", timeout=10)
            killer = "(setsid sleep 7123 >/dev/null 2>&1 &); kill -9 $PPID"
            with pytest.raises(Exception, match="its container ended"):
                await sandbox.run(killer, timeout=10)
        assert made.name.startswith("patchgym-local-")
        assert not await anyio.Path(made).exists()
        assert not sleepers(7121, 7122, 7123)
    with pytest.raises(EngineUnavailable):
        async with pool.lease(timeout=1):
            pass


def sleepers(*seconds: int) -> list[int]:
    """Which of these `sleep`s run on this machine."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes())
        except OSError:
            continue  # it is gone
    return [each for each in seconds if b"sleep\0%d\0" % each in lines]


async def test_local_processes_die_with_their_owner() -> None:
    program = """if 1:
        import anyio
        from patchgym.sandbox import LocalPool, SandboxSpec
        async def main():
            async with LocalPool(SandboxSpec(image="none")) as pool:
                async with pool.lease(timeout=10) as sandbox:
                    print((await sandbox.run("pwd", timeout=10)).stdout.text(), end="")
                    await sandbox.run("setsid sleep 7131 >/dev/null 2>&1 &", timeout=10)
                    process = await sandbox.start("sleep 7132")
                    print("ready", flush=True)
                    await anyio.sleep_forever()
        anyio.run(main)
    """
    owner = await anyio.open_process([sys.executable, "-c", program], stderr=None)
    assert owner.stdout is not None
    said = b""
    try:
        while b"ready" not in said:
            said += await owner.stdout.receive()
        with anyio.fail_after(30):
            while sleepers(7131, 7132) != [7131, 7132]:  # noqa: ASYNC110 (other processes')
                await anyio.sleep(0.02)
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    with anyio.fail_after(30):
        while sleepers(7131, 7132):  # noqa: ASYNC110 (other processes')
            await anyio.sleep(0.02)
    await owner.aclose()
    await anyio.run_process(["rm", "-r", str(Path(said.decode().split()[0]).parent)])


async def test_a_local_pool_is_bounded_and_names_its_culprit() -> None:
    async with LocalPool(SandboxSpec(image="none"), size=1) as pool:
        async with pool.lease(timeout=10, borrower="rollout 7"):
            with pytest.raises(LeaseTimeout, match="all 1 are leased, .* by rollout 7"):
                async with pool.lease(timeout=0.05):
                    pass
        async with pool.lease(timeout=0):
            pass
    for wrong in (
        SandboxSpec(image="none", switch_user=True),
        SandboxSpec(image="none", writable_root=True),
        SandboxSpec(image="none", runtime="runsc"),
        SandboxSpec(image="none", supervisor="shell"),
    ):
        with pytest.raises(SandboxUsageError):
            LocalPool(wrong)


async def test_tests_run_in_the_local_fake() -> None:
    async with local() as pool, pool.lease(timeout=10) as sandbox:
        await sandbox.write("test_x.py", b"def test_a(): pass\ndef test_b(): assert 1 == 2\n")
        names = ["test_x.py::test_a", "test_x.py::test_b"]
        found = await run_tests(sandbox, test_ids=names, timeout=60)
    assert list(found.outcomes.values()) == ["passed", "failed"] and found.consistent
