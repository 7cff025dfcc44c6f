"""Fixtures shared by all tests: the real base image, the real weights, and a watched event loop."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from ray_nodes import RayNodes, ray_nodes

from patchgym.sandbox import BuildAccess, ImageStore, ensure_base, ensure_lint_image

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, unless a test asks for trio by parametrizing."""
    return "asyncio"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def docker_image() -> str:
    """Tag of the base image, built when it is missing."""
    return anyio.run(ensure_base)


@pytest.fixture(scope="session")
def lint_image(docker_image: str) -> str:
    """Tag of the image with the linters, built when it is missing."""

    async def build() -> str:
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
        async with ImageStore(access=access) as store:
            return await ensure_lint_image(store)

    return anyio.run(build)


@pytest.fixture(scope="session")
def weights() -> Path:
    """The pretrained weights, fetched when they are missing."""
    from patchgym.datasets.cache import cache_dir
    from patchgym.trainer.model.weights import ensure_weights

    return ensure_weights(cache_dir())


@pytest.fixture
def clean_environment() -> Iterator[dict[str, str]]:
    """An environment for child processes: ours, with nothing that changes what they print."""
    drop = ("PYTHONDONTWRITEBYTECODE", "FORCE_COLOR", "NO_COLOR")
    yield {key: value for key, value in os.environ.items() if key not in drop}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """Two Ray nodes with sandboxes; a test that takes one away gives one back."""
    with ray_nodes(2) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def vllm_python(root: Path) -> Path:
    """Python of the environment that holds vLLM, set up when it is missing."""
    subprocess.run([root / "scripts" / "vllm.sh"], check=True, cwd=root)
    return root / ".venv-vllm" / "bin" / "python"
