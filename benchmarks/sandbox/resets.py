"""What the next user of a container finds of what the one before left there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from patchgym.sandbox import Pool, SandboxSpec

from . import tampering
from .bench import TAMPERED, Bench
from .contestants import DOCKER_PY, POOLED, WAIT, Ours, child
from .environments import Unavailable

GIT = "git reset --hard && git clean -fdx, by docker-py"
TOOK = "tamperings that took effect at first"


async def measure(bench: Bench) -> None:
    """Three ways."""
    ways: dict[str, Callable[[Bench], Awaitable[tuple[str, str]]]] = {
        Ours.name: new_lease,
        GIT: git_reset,
        POOLED.name: next_session,
    }
    for name, way in ways.items():
        try:
            before, after = map(tampering.seen, await way(bench))
        except Unavailable as reason:
            bench.report.note(name, TAMPERED, reason)
            continue
        bench.report.fact(TOOK, name, len(before), "of 20")
        names = f"of 20: {', '.join(after)}" if after else "of 20"
        bench.report.fact(TAMPERED, name, len(after), names)


async def new_lease(bench: Bench) -> tuple[str, str]:
    """Ours, as root with a writable root file system, so that everything can be tampered with."""
    spec = SandboxSpec(image=bench.image, writable_root=True, user="0:0")
    async with Pool(spec, size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            first = Ours(sandbox)
            await first.output(tampering.layout())
            await first.output(tampering.tamper())
            before = await first.output(tampering.look())
        async with pool.lease(timeout=WAIT) as sandbox:
            second = Ours(sandbox)
            if "found" in await second.output(tampering.layout()):
                return before, before
            return before, await second.output(tampering.look())


async def git_reset(bench: Bench) -> tuple[str, str]:
    """One container, cleaned by git."""
    async with child(DOCKER_PY, bench.image) as container:
        await container.start()
        await container.output(tampering.layout())
        await container.output(tampering.tamper())
        before = await container.output(tampering.look())
        await container.output(tampering.reset())
        return before, await container.output(tampering.look())


async def next_session(bench: Bench) -> tuple[str, str]:
    """llm-sandbox's pool of one container, two sessions."""
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(child(POOLED, bench.image))
        await pool.start()
        await pool.output(tampering.layout())
        await pool.output(tampering.tamper())
        before = await pool.output(tampering.look())
        await pool.close()
        await pool.start()
        await pool.output(tampering.layout())
        return before, await pool.output(tampering.look())
