"""Checks of snapshots: files of one sandbox to start others from."""

from __future__ import annotations

from .contract import Backend
from .expect import LEASE_LIMIT, demand_of_backend, expect, is_alive, printed, same
from .repositories import repository


@demand_of_backend("snapshots", "a lease from a snapshot has its files, and none of its processes")
async def snapshot_has_files(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        await sandbox.write("d/f", b"\x00kept")
        await printed(sandbox, 'chmod 750 d; ln -s d/f l; echo rc >"$HOME/.rc"')
        await printed(sandbox, "sleep 7080 >/dev/null 2>&1 &")
        snapshot = await sandbox.snapshot()
    async with backend.lease(timeout=LEASE_LIMIT, snapshot=snapshot) as sandbox:
        same("file", await sandbox.read("d/f"), b"\x00kept")
        same("mode, link, home", await printed(sandbox, 'stat -c %a d; cat l "$HOME/.rc"'),
             "750\n\x00keptrc\n")  # fmt: skip
        expect(not await is_alive(sandbox, 7080), "sleep 7080 is alive")


@demand_of_backend("snapshots", "a snapshot is of its moment, and serves any number of leases")
async def snapshot_is_a_copy(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        await sandbox.write("f", b"then")
        snapshot = await sandbox.snapshot()
        await sandbox.write("f", b"later")
        await sandbox.write("g", b"later")
    for _ in range(2):
        async with backend.lease(timeout=LEASE_LIMIT, snapshot=snapshot) as sandbox:
            same("files", await printed(sandbox, "cat f; ls"), "thenf\n")
            await sandbox.write("f", b"changed by a lease")


@demand_of_backend("snapshots", "diff() goes on from a snapshot of a checkout")
async def snapshot_of_a_checkout(backend: Backend) -> None:
    async with repository({"a.txt": "one\n"}) as (place, commit):
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            await sandbox.checkout(place, commit)
            await sandbox.write("a.txt", b"two\n")
            snapshot = await sandbox.snapshot()
            wanted = await sandbox.diff()
        async with backend.lease(timeout=LEASE_LIMIT, snapshot=snapshot) as sandbox:
            same("diff()", await sandbox.diff(), wanted)
    expect(b"+two" in wanted, "the diff does not show the change")


@demand_of_backend("snapshots", "a lease without a snapshot knows nothing of those before")
async def snapshot_stays_away(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        await sandbox.write("f", b"x")
        snapshot = await sandbox.snapshot()
    async with backend.lease(timeout=LEASE_LIMIT, snapshot=snapshot) as sandbox:
        await printed(sandbox, "test -e f")
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        same("files", await printed(sandbox, "ls -A"), "")
