"""Small sandboxes for the storm."""

from __future__ import annotations

import pytest

from patchgym.sandbox import SandboxSpec


@pytest.fixture
def spec(docker_image: str) -> SandboxSpec:
    """Small limits: many at once."""
    return SandboxSpec(image=docker_image, memory_mib=64, disk_mib=16, pids=32)
