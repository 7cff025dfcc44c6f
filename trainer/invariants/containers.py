"""Containers: none of a process that is gone."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from patchgym.sandbox import ContainerInfo, Engine, Owner
from patchgym.sandbox.reaper import KIT, KIT_NAME, current_owner, is_dead
from patchgym.trainer.run_facts import Facts

from .finding import Finding


async def check_containers(facts: Facts, engine: Engine, patience: float = 15.0) -> Finding:
    """No container of a process that ran it and is gone. Raises EngineUnavailable.

    A container ends by itself moments after its owner: it counts as left after `patience` seconds.
    One that was made and never started when its owner was killed can't; the next start sweeps it,
    so that it is no fault before.
    """
    here = current_owner()
    gone = {owner for owner in facts.owners if is_dead(owner, here, same_machine=engine.local)}
    last = facts.owners[-1] if facts.owners and not facts.in_order() else None
    left: list[ContainerInfo] = []
    with anyio.move_on_after(patience):
        while left := await _containers_of(gone, engine):  # noqa: ASYNC110
            await anyio.sleep(0.5)
    waiting = [each for each in left if each.state == "created" and _owner(each) == last]
    lines = [
        f"container {each.name} is left ({each.state}): patchgym sandbox reap"
        for each in left
        if each not in waiting
    ]
    note = f"{len(facts.owners)} processes ran it"
    if waiting:
        note += f"; {len(waiting)} never started, which the next start sweeps"
    return Finding(
        name="no container",
        promise="a process that is gone leaves no container",
        checked=len(gone),
        broken=tuple(lines),
        note=note,
    )


async def _containers_of(owners: Collection[Owner], engine: Engine) -> list[ContainerInfo]:
    if not owners:
        return []
    return [each for each in await engine.containers({KIT: KIT_NAME}) if _owner(each) in owners]


def _owner(container: ContainerInfo) -> Owner | None:
    return Owner.of(container.labels)
