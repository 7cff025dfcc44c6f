"""The example of docs/tasks.md, followed to the letter."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from patchgym.datasets.task import Task, bundled_tasks, load_tasks
from patchgym.datasets.validate import validate
from patchgym.sandbox import Pool, SandboxSpec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
WRONG = "def discount(price, percent):\n    return price - percent / 100\n"
RIGHT = "def discount(price, percent):\n    return price - price * percent / 100\n"
TESTS = """from price import discount


def test_a_quarter_off():
    assert discount(80, 25) == 60


def test_nothing_off():
    assert discount(80, 0) == 80
"""


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    """The page's example, its two placeholders filled in by the page's two commands."""
    shop = tmp_path / "src" / "shop"
    (shop / "tests").mkdir(parents=True)
    (shop / "tests" / "test_price.py").write_text(TESTS)
    (shop / "conftest.py").write_text("")  # puts the root on pytest's path
    git(shop, "init", "-q", "-b", "main")
    commits = {}
    for name, code in (("BASE", WRONG), ("FIX", RIGHT)):
        (shop / "price.py").write_text(code)
        git(shop, "add", "-A")
        git(shop, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", name)
        commits[name] = git(shop, "rev-parse", "HEAD").strip()
    block = re.search(r"<!-- example -->\n```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    row = json.loads(block[1])
    row["base_commit"] = commits[row["base_commit"]]
    row["gold_patch"] = git(shop, "diff", commits["BASE"], commits["FIX"], "--", "price.py")
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_example_loads(tasks_file: Path) -> None:
    (task,) = load_tasks(tasks_file)
    assert task.id == "shop/discount"
    assert task.focus is not None and task.focus.function == "discount"


@pytest.mark.docker
async def test_the_example_is_valid(tasks_file: Path, docker_image: str) -> None:
    (task,) = load_tasks(tasks_file)
    async with Pool(SandboxSpec(image=docker_image, disk_mib=32), size=1) as pool:
        assert (await validate(task, pool)).ok


def test_the_table_names_every_key_and_the_counts_are_true() -> None:
    page = PAGE.read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(Task.__slots__)
    train, heldout = len(bundled_tasks("train")), len(bundled_tasks("heldout"))
    assert f"{train + heldout} repairs of one small function" in page
    assert f"{train} in\n`bundled:train`, {heldout} in `bundled:heldout`" in page
