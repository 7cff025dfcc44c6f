"""Small sandboxes and small trainings for the storm."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_runs import ChaosRun

from patchgym.sandbox import SandboxSpec


@pytest.fixture
def spec(docker_image: str) -> SandboxSpec:
    """Small limits: many at once."""
    return SandboxSpec(image=docker_image, memory_mib=64, disk_mib=16, pids=32)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled programs of all trainings here."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def run(root: Path, tmp_path: Path, clean_environment: dict[str, str], programs: Path) -> ChaosRun:
    """A coin run that goes on until it is told to end."""
    found = ChaosRun(root, tmp_path, clean_environment, programs)
    found.prepare()
    return found
