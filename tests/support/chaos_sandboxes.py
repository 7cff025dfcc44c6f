"""The coin run with a real sandbox in every rollout, on a Docker daemon of the test's own."""

from __future__ import annotations

from coin_runs import COINS

SANDBOXED = (
    COINS
    + """
from contextlib import AsyncExitStack
from patchgym.sandbox import Pool, SandboxSpec

class Sandboxed(arithmetic.SumEnvironment):
    def __init__(self, task, pool, on_stage):
        super().__init__(task)
        self.pool, self.on_stage, self.stack = pool, on_stage, AsyncExitStack()

    async def __aexit__(self, *error):
        await self.stack.aclose()

    async def open(self):
        self.on_stage("lease wait")
        lease = self.pool.lease(timeout=120, borrower=self.task.id)
        sandbox = await self.stack.enter_async_context(lease)
        self.on_stage("tool shell")
        done = await sandbox.run("ls | wc -l; touch mine; sleep 0.2", timeout=20)
        assert done.stdout.text().split() == ["0"], done
        if self.task.left == 3:     # more than its memory: the command fails, the sandbox lives
            hog = await sandbox.run("head -c 300m /dev/zero | tail", timeout=20)
            assert not hog.ok
        return await super().open()

class SandboxCoins(Coins):
    def __init__(self, settings):
        super().__init__(settings)
        spec = SandboxSpec(image=settings["image"], memory_mib=64, disk_mib=16, pids=32)
        self.pool = Pool(spec, size=4)

    async def __aenter__(self):
        await self.pool.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self.pool.__aexit__(*error)

    def environment(self, task, on_stage):
        return Sandboxed(task, self.pool, on_stage)
"""
)
