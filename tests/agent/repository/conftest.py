"""A small repository with odd files in it, as two tasks, and environments for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from git_history import History

from patchgym.agent import Observation, ToolCall
from patchgym.agent.repository import (
    RepositoryConfig,
    RepositoryEnvironment,
    SandboxSource,
    lease_repository,
)
from patchgym.datasets.task import Task
from patchgym.sandbox import LocalPool, Pool, SandboxSpec

CALC = """def add(a, b):
    return a - b


def twice(a):
    return add(a, a)
"""
TESTS = """from calc import add, twice


def test_add():
    assert add(2, 3) == 5


def test_twice():
    assert twice(2) == 4


def test_zero():
    assert add(0, 0) == 0
"""
HIDDEN = """

def test_far_future():
    assert add(-1, 1) == 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The tasks; both begin at the first of two commits."""

    plain: Task
    """Its failing tests are there at the base commit."""
    hidden: Task
    """Its failing test comes with a test patch."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for a file's tests, which share a pool."""
    return "asyncio"


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    history = History(tmp_path_factory.mktemp("ground") / "calc")
    base = history.commit(
        "Start",
        {
            "calc.py": CALC,
            "test_calc.py": TESTS,
            "test_slow.py": "import time\n\n\ndef test_slow():\n    time.sleep(1000)\n",
            "windows.txt": b"one\r\ntwo\r\nthree\r\n",
            "latin.txt": b"caf\xe9\nplain\n",
            "blob.bin": bytes(range(256)),
            "unended.txt": b"one\ntwo",
            "twins.txt": b"a\nsame\nb\nsame\n",
            "tabs.py": "def f():\n\tif True:\n\t\treturn 1\n",
            "docs/index.md": "# Calc\n",
            "empty.txt": b"",
            ".gitignore": "*.log\n",
        },
        links={"link.py": "calc.py", "etc": "/etc", "up": "..", "hole": "/none/there"},
    )
    history.commit("The fix", {"calc.py": CALC.replace("a - b", "a + b")})
    gold = history.git("diff", base, "HEAD")
    fixed = history.head
    history.commit("Its tests", {"test_calc.py": TESTS + HIDDEN})
    tests = history.git("diff", fixed, "HEAD")
    history.git("tag", "v2")
    plain = Task(
        id="ground/plain",
        statement="add() takes away.",
        base_commit=base,
        gold_patch=gold,
        fail_to_pass=("test_calc.py::test_add", "test_calc.py::test_twice"),
        pass_to_pass=("test_calc.py::test_zero",),
        test_files=("test_calc.py",),
        repository=str(history.folder),
    )
    hidden = replace(
        plain,
        id="ground/hidden",
        fail_to_pass=("test_calc.py::test_far_future",),
        pass_to_pass=("test_calc.py::test_zero", "test_calc.py::test_far_past"),
        test_patch=tests,
    )
    return Ground(plain=plain, hidden=hidden)


@pytest.fixture(scope="module")
async def pool(docker_image: str) -> AsyncIterator[Pool]:
    async with Pool(SandboxSpec(image=docker_image, memory_mib=256), size=2) as pool:
        yield pool


@pytest.fixture
async def local() -> AsyncIterator[LocalPool]:
    async with LocalPool(SandboxSpec(image="none")) as pool:
        yield pool


Opened = Callable[..., RepositoryEnvironment]
Tool = Callable[..., Awaitable[Observation]]


@pytest.fixture
def opened(tmp_path: Path, ground: Ground) -> Opened:
    """Makes an environment for a task."""

    def make(
        pool: SandboxSource, task: Task = ground.plain, **limits: float
    ) -> RepositoryEnvironment:
        config = RepositoryConfig(repositories=tmp_path, **limits)  # type: ignore[arg-type]
        lease = lease_repository(task, pool, repositories=tmp_path, timeout=60)
        return RepositoryEnvironment(task, lease, config)

    return make


@pytest.fixture
async def environment(pool: Pool, opened: Opened) -> AsyncIterator[RepositoryEnvironment]:
    """For the plain task, with short limits."""
    async with opened(pool, command_seconds=20, tests_seconds=30) as environment:
        yield environment


@pytest.fixture
def tool(environment: RepositoryEnvironment) -> Tool:
    """Calls a tool by name."""

    async def call(name: str, **arguments: object) -> Observation:
        return await environment.step(ToolCall(name=name, arguments=arguments))

    return call
