"""A small repository with a bug and its fix, as rows of every format are about."""

from __future__ import annotations

import io
import secrets
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from own_images import own_images

from patchgym.datasets.adapters import Imported, Sources, find_format
from patchgym.datasets.adapters.base import read_all
from patchgym.datasets.environment import Environment
from patchgym.datasets.images import TaskImages, pool_spec
from patchgym.datasets.recipes import Recipe
from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task
from patchgym.datasets.trial import TrialConfig
from patchgym.datasets.validate import validate
from patchgym.sandbox import Engine, ImageStore, Pool
from patchgym.sandbox.engine import Finish
from patchgym.sandbox.testing import logs

WRONG = "def discount(price, percent):\n    return price - percent / 100\n"
RIGHT = "def discount(price, percent):\n    return price - price * percent / 100\n"
OLD_TESTS = (
    "from shop.price import discount\n\n\ndef test_nothing():\n    assert discount(8, 0) == 8\n"
)
NEW_TESTS = f"{OLD_TESTS}\n\ndef test_quarter():\n    assert discount(80, 25) == 60\n"
STATEMENT = "discount(80, 25) gives 79.75.\n\nIt must take 25 percent off."
RECIPE = Recipe(
    repo="ada/shop",
    environment=Environment(test_command="python3 -m pytest {test_files}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The repository, and what SWE-bench's pipeline would have taken from its pull request."""

    path: Path
    base: str
    """Commit with the bug."""
    fix: str
    """The one after it: the fix and its test."""
    gold: str
    tests: str

    def classic(self, **changes: Any) -> dict[str, Any]:
        """A row of SWE-bench, with every column of it."""
        return {
            "repo": "ada/shop",
            "instance_id": "ada__shop-12",
            "base_commit": self.base,
            "patch": self.gold,
            "test_patch": self.tests,
            "problem_statement": STATEMENT,
            "hints_text": "Look at the percent.",
            "created_at": "2026-01-01T00:00:00Z",
            "version": "1.7",
            "FAIL_TO_PASS": '["tests/test_price.py::test_quarter"]',
            "PASS_TO_PASS": '["tests/test_price.py::test_nothing"]',
            "environment_setup_commit": self.base,
            **changes,
        }

    def lists(self, **changes: Any) -> dict[str, Any]:
        """The same with lists where SWE-bench has JSON texts, and without what is only its own."""
        row = self.classic(
            FAIL_TO_PASS=["tests/test_price.py::test_quarter"],
            PASS_TO_PASS=["tests/test_price.py::test_nothing"],
        )
        del row["environment_setup_commit"]
        return row | changes


def git(folder: Path, *words: str, stdin: str | None = None) -> str:
    """Run git in a folder."""
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(
        [*command, *words], check=True, capture_output=True, text=True, input=stdin
    )
    return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """In two commits."""
    path = tmp_path / "shop"
    for folder in ("shop", "tests"):
        (path / folder).mkdir(parents=True)
    (path / "conftest.py").write_text("")  # puts the root on pytest's path
    (path / "shop/__init__.py").write_text("")
    git(path, "init", "-q", "-b", "main")
    commits = []
    for code, tests in ((WRONG, OLD_TESTS), (RIGHT, NEW_TESTS)):
        (path / "shop/price.py").write_text(code)
        (path / "tests/test_price.py").write_text(tests)
        git(path, "add", "-A")
        git(path, "commit", "-qm", "x")
        commits.append(git(path, "rev-parse", "HEAD").strip())
    base, fix = commits
    gold, tests = (git(path, "diff", base, fix, "--", place) for place in ("shop", "tests"))
    return Shop(path=path, base=base, fix=fix, gold=gold, tests=tests)


@pytest.fixture(autouse=True)
def parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of swebench's parsers, whether or not it is installed."""
    known: dict[str, object] = {"parse_log_pytest": None, "parse_log_gotest": None}
    monkeypatch.setattr(logs, "_registry", lambda: known)


def read(
    shop: Shop, form: str, *rows: Mapping[str, Any], recipes: tuple[Recipe, ...] = ()
) -> Imported:
    """The rows as that format."""
    sources = Sources(
        recipes=recipes,
        mirrors={"ada/shop": shop.path},
        repositories=shop.path.parent / "repositories",
    )
    found = find_format(form)
    named = [(Row(where=f"rows:{n}", values=row), found) for n, row in enumerate(rows, 1)]
    tasks, reasons = read_all(named, sources)
    return Imported(tasks=tasks, reasons=reasons)


def one(shop: Shop, form: str, row: Mapping[str, Any], recipes: tuple[Recipe, ...] = ()) -> Task:
    """The task of a row that has to be usable."""
    found = read(shop, form, row, recipes=recipes)
    assert not found.reasons
    return found.tasks[0]


def reason(shop: Shop, form: str, row: Mapping[str, Any], recipes: tuple[Recipe, ...] = ()) -> str:
    """Why a row can't be used, which has to be said on one line."""
    found = read(shop, form, row, recipes=recipes)
    assert not found.tasks
    (text,) = found.reasons.values()
    assert "\n" not in text
    return text


def checks(task: Task, work: Path) -> None:
    """Gold and test patch apply to the task's commit, in its repository, with real git."""
    assert task.repository is not None
    subprocess.run(["git", "clone", "-q", "-n", task.repository, str(work)], check=True)
    git(work, "checkout", "-q", task.base_commit)
    for diff in (task.gold_patch, task.test_patch):
        git(work, "apply", "--index", "-", stdin=diff)
    for path in task.test_files:
        assert (work / path).is_file()


@pytest.fixture
def ready(shop: Shop, docker_image: str) -> Iterator[str]:
    """A local image like those of the sets: the fix's history in /testbed, tests in the root."""
    tag = f"patchgym-test/eval:{secrets.token_hex(4)}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(shop.path, "testbed")
        python = tarfile.TarInfo("testbed/.venv/bin/python")
        python.type, python.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        archive.addfile(python)
        archive.add(shop.path / "tests", "r2e_tests")
    finish = Finish(tag=tag, labels={}, message="ready", user="0:0", workdir="/testbed")
    anyio.run(Engine().derive, docker_image, buffer.getvalue(), finish)
    yield tag
    subprocess.run(["docker", "rmi", tag], check=True, capture_output=True)


@pytest.fixture
def prefix() -> Iterator[str]:
    """A set of images of this test's own, gone after it."""
    with own_images() as name:
        yield name


@pytest.fixture
async def store(prefix: str, tmp_path: Path) -> AsyncIterator[ImageStore]:
    """Makes those images."""
    async with ImageStore(prefix=prefix, folder=tmp_path / "store") as store:
        yield store


async def validated(task: Task, store: ImageStore, docker_image: str) -> tuple[str, str]:
    """What validation makes of it in its image, and what an agent would find there."""
    images = TaskImages(store)
    image = await images.prepare(task)
    assert image is not None
    async with Pool(pool_spec([task], docker_image), size=1) as pool:
        found = await validate(task, pool, config=TrialConfig(images=images))
        assert (found.status, found.reason) == ("valid", "")
    async with (
        Pool(image.spec, size=1) as pool,
        pool.lease(timeout=120, snapshot=image.snapshot) as sandbox,
    ):
        seen = await sandbox.run("git log --all --format=%H; ls / /testbed; ls -a .", timeout=60)
        changed = await sandbox.run("git status --short", timeout=60)
    return seen.stdout.text(), changed.stdout.text()
