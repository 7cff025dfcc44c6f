"""Injection into a small library, in real sandboxes: tasks that hold, and the same each time."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from small_library import FILES

from patchgym.datasets.environment import Environment
from patchgym.datasets.injection import (
    Injection,
    InjectionConfig,
    Limits,
    Statistics,
    inject,
    open_origin,
)
from patchgym.datasets.leaks import quoted_lines
from patchgym.datasets.repository import commit_files
from patchgym.datasets.task import dump_tasks
from patchgym.datasets.validate import validate
from patchgym.sandbox import BuildAccess, ImageStore, Pool, SandboxSpec

pytestmark = pytest.mark.docker
COUNT = 5


class Heard:
    """Notes down the progress."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.batches = 0

    def stage(self, text: str) -> None:
        """What is done now."""
        self.stages.append(text)

    def counted(self, statistics: Statistics) -> None:
        """A batch is through."""
        self.batches += 1


def make(
    folder: Path, *, count: int = COUNT, jobs: int = 2, files: dict[str, str] | None = None
) -> tuple[Injection, Heard]:
    """Tasks from the library."""
    source = folder / "shop"
    if not source.exists():
        source.mkdir(parents=True)
        commit_files({**FILES, **(files or {})}, source).close()
    heard = Heard()

    async def run() -> Injection:
        origin = open_origin(source, folder / "work" / "source.git")
        config = InjectionConfig(count=count, seed=3, jobs=jobs, limits=Limits(max_share=0.6))
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
        async with ImageStore(access=access) as store:
            work = folder / "work"
            return await inject(origin, Environment(), work, store, config, heard)

    return anyio.run(run), heard


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Injection]]:
    """The folder, and what was made in it."""
    folder = tmp_path_factory.mktemp("inject")
    yield folder, make(folder)[0]


def test_there_are_as_many_as_asked_for_of_several_kinds(made: tuple[Path, Injection]) -> None:
    _, injection = made
    assert len(injection.tasks) == COUNT
    assert not injection.reason
    assert len({task.provenance["kinds"] for task in injection.tasks}) >= 4
    assert {task.provenance["path"] for task in injection.tasks} == {
        "shop/stock.py",
        "shop/price.py",
    }
    statistics = injection.statistics
    assert statistics.kept == COUNT
    assert statistics.tests == 18
    assert statistics.tried == sum(statistics.endings.values())


def test_tasks_say_what_is_seen_and_do_not_give_the_fix_away(
    made: tuple[Path, Injection],
) -> None:
    for task in made[1].tasks:
        assert "test" in task.statement
        assert not quoted_lines(task)
        assert not any(path in task.statement for path in ("shop/stock.py", "shop/price.py"))
        assert task.difficulty is not None and 0 < task.difficulty < 1
        assert set(task.fail_to_pass).isdisjoint(task.pass_to_pass)


async def test_tasks_hold_in_fresh_sandboxes(
    made: tuple[Path, Injection], docker_image: str
) -> None:
    async with Pool(SandboxSpec(image=docker_image), size=1) as pool:
        answer = await validate(made[1].tasks[0], pool)
    assert answer.ok, answer.reason


def test_the_same_seed_makes_the_same_bytes_with_any_number_of_jobs(
    made: tuple[Path, Injection], tmp_path: Path
) -> None:
    folder, injection = made
    (tmp_path / "shop").symlink_to(folder / "shop")
    again, _ = make(tmp_path, jobs=1)
    texts = []
    for number, found in enumerate((injection, again)):
        base = (folder, tmp_path)[number]
        dump_tasks(found.tasks, tmp_path / f"{number}.jsonl")
        text = (tmp_path / f"{number}.jsonl").read_text()
        texts.append(text.replace(str(base.resolve()), ""))
    assert texts[0] == texts[1]


def test_what_was_tried_is_not_tried_again(made: tuple[Path, Injection]) -> None:
    folder, injection = made
    (records,) = (folder / "work").glob("*/records.jsonl")
    before = records.read_text()
    again, heard = make(folder)
    assert [task.id for task in again.tasks] == [task.id for task in injection.tasks]
    assert records.read_text() == before
    assert "running all tests, three times" not in heard.stages


def test_bugs_that_hang_or_break_everything_are_left_out(tmp_path: Path) -> None:
    code = "def countdown(number):\n    while number > 0:\n        number -= 1\n    return number\n"
    tests = (
        "from shop.loop import countdown\n\n\n"
        "def test_down():\n    assert countdown(3) == 0\n\n\n"
        "def test_below():\n    assert countdown(-2) == -2\n"
    )
    source = tmp_path / "shop"
    source.mkdir()
    commit_files(
        {"shop/__init__.py": "", "shop/loop.py": code, "tests/test_loop.py": tests}, source
    ).close()
    injection, _ = make(tmp_path, count=40)
    assert "were tried" in injection.reason
    endings = injection.statistics.endings
    assert endings["hung"] >= 1  # number += 1
    assert endings["kept"] == len(injection.tasks) < 40
    assert all(len(task.fail_to_pass) == 1 for task in injection.tasks)
