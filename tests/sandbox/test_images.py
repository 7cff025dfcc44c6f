"""The base image and the ten lines of the docs that use it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.sandbox import Engine, EngineUnavailable, ImageError, ensure_base


@pytest.mark.docker
async def test_the_base_image_is_there_and_found_again(docker_image: str) -> None:
    assert docker_image == "patchgym/base:bookworm-py311"
    engine = Engine()
    before = await engine.image_id(docker_image)
    assert await ensure_base(engine=engine) == docker_image
    assert before is not None and await engine.image_id(docker_image) == before
    engine.close()


async def test_what_can_not_be_had(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no base image called 'nonsense'; there is bookworm"):
        await ensure_base("nonsense")
    engine = Engine(f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnavailable):
        await ensure_base(engine=engine)
    engine.close()


@pytest.mark.docker
async def test_a_registry_without_the_image(docker_image: str) -> None:
    engine = Engine()
    assert not await engine.registry_offers("localhost:1/patchgym/none:none", within=5)
    engine.close()


@pytest.mark.docker
def test_the_ten_lines_of_the_docs(docker_image: str, root: Path) -> None:
    page = (root / "docs" / "sandbox.md").read_text()
    program = re.findall("```python\n(.*?)```", page, re.DOTALL)[0]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    words = done.stdout.split()
    assert words[:2] == ["hello", "True"] and 1.0 <= float(words[2]) < 2.0, done.stderr
