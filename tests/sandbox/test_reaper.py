"""Whose containers may be swept."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from patchgym.sandbox import Engine, Owner, SandboxSpec, sweep
from patchgym.sandbox.reaper import current_owner, is_dead


def dead_owner() -> Owner:
    """A process that is no more."""
    program = "from patchgym.sandbox.reaper import current_owner; print(current_owner().labels())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    owner = Owner.of(eval(done.stdout))
    assert owner is not None
    return owner


def test_who_is_dead() -> None:
    here = current_owner()
    assert not is_dead(here, here, same_machine=True)
    assert is_dead(dead_owner(), here, same_machine=True)
    reused = replace(here, started="1")  # another process had our id before us
    assert is_dead(reused, here, same_machine=True)
    rebooted = replace(here, boot="before")
    assert is_dead(rebooted, here, same_machine=True)
    assert not is_dead(rebooted, here, same_machine=False)  # it may be another machine
    assert not is_dead(replace(here, namespace="pid:[1]", pid=1), here, same_machine=True)


def test_labels_round_trip() -> None:
    here = current_owner()
    assert Owner.of(here.labels()) == here
    assert Owner.of({"patchgym.kit": "sandbox"}) is None


@pytest.mark.docker
async def test_sweep_takes_the_dead_and_spares_the_living(spec: SandboxSpec) -> None:
    engine = Engine()
    owners = {"patchgym-test-dead": dead_owner(), "patchgym-test-alive": current_owner()}
    for name, owner in owners.items():
        config = {"Image": spec.image, "Cmd": ["cat"], "OpenStdin": True, "Labels": owner.labels()}
        stream, _ = await engine.launch(name, config)
        await stream.aclose()
    try:
        removed = await sweep(engine)
        assert "patchgym-test-dead" in removed and "patchgym-test-alive" not in removed
        assert await engine.inspect("patchgym-test-dead") is None
        assert await engine.inspect("patchgym-test-alive") is not None
    finally:
        for name in owners:
            await engine.remove(name)
        engine.close()
