"""The images that tasks run in: made by their environment, or ready ones without their history."""

from __future__ import annotations

import io
import secrets
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from own_images import own_images

from patchgym.datasets.environment import Environment
from patchgym.datasets.images import TaskImage, TaskImages, base_tag, image_recipe
from patchgym.datasets.task import Task
from patchgym.sandbox import ImageError, ImageStore, Pool

WAIT = 120.0
Make = Callable[..., Task]


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def docker(*words: str, stdin: bytes = b"") -> bytes:
    """What the docker command prints."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, input=stdin).stdout


@pytest.fixture
def task(tmp_path: Path) -> Make:
    """Makes a task in a repository whose history goes on after its base commit."""
    root = tmp_path / "shop"
    root.mkdir()
    git(root, "init", "-q")
    for text in ("OFF = 0\n", "OFF = 25\n"):
        (root / "shop.py").write_text(text)
        git(root, "add", "-A")
        git(root, "commit", "-qm", text)

    def make(environment: Environment | None, image: str | None = None) -> Task:
        return Task(
            id="ada__shop-12",
            statement="25 percent off is nothing off.",
            base_commit=git(root, "rev-parse", "HEAD~1"),
            gold_patch=git(root, "diff", "HEAD~1", "HEAD") + "\n",
            fail_to_pass=("test_shop.py::test_off",),
            test_files=("test_shop.py",),
            repository=str(root),
            environment=environment,
            image=image,
        )

    return make


@pytest.fixture
def prefix(docker_image: str) -> Iterator[str]:
    """A set of images of this test's own, gone after it."""
    with own_images() as name:
        yield name


@pytest.fixture
async def store(prefix: str, tmp_path: Path) -> AsyncIterator[ImageStore]:
    async with ImageStore(prefix=prefix, folder=tmp_path / "store") as store:
        yield store


@pytest.fixture
def ready(docker_image: str) -> Iterator[str]:
    """A local image like SWE-bench's own: root's work tree in /testbed, built, with its history."""
    tag = f"patchgym-test/eval:{secrets.token_hex(4)}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("shop.py", "built.so", ".git/HEAD", ".git/objects/ab/future"):
            data = f"ready {name}\n".encode()
            member = tarfile.TarInfo(f"testbed/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    made = docker("create", docker_image, "none").decode().strip()
    try:
        docker("cp", "-", f"{made}:/", stdin=buffer.getvalue())
        docker("commit", made, tag)
    finally:
        docker("rm", made)
    yield tag
    docker("rmi", tag)


async def answer(image: TaskImage, task: Task, command: str) -> list[str]:
    """What a command prints in a lease of that image, line by line."""
    async with (
        Pool(image.spec, size=1) as pool,
        pool.lease(timeout=WAIT, snapshot=image.snapshot) as sandbox,
    ):
        if image.snapshot is None:
            await sandbox.checkout(Path(str(task.repository)), task.base_commit)
        result = await sandbox.run(command, timeout=WAIT)
        assert result.ok, result.stderr.text()
        return result.stdout.text().splitlines()


@pytest.mark.parametrize(
    ("base", "tag"),
    [
        ("bookworm", "patchgym/base:bookworm-py311"),
        ("debian:bookworm", "patchgym/base:bookworm-py311"),
        ("bullseye", "patchgym/base:bullseye-py39"),
        ("debian:bullseye", "patchgym/base:bullseye-py39"),
        ("debian:trixie", "debian:trixie"),
        ("hub/image:tag", "hub/image:tag"),
    ],
)
def test_bases(base: str, tag: str) -> None:
    assert base_tag(base) == tag


def test_packages_come_before_the_set_up_and_install_apart() -> None:
    environment = Environment(packages=("gcc", "a b"), setup=("one", "two"), install=("three",))
    made = image_recipe(environment)
    packages, *setup = made.commands
    assert "apt-get update" in packages and "apt-get install" in packages
    assert "--no-install-recommends" in packages and "gcc 'a b' &&" in packages
    assert packages.endswith("rm -rf /var/lib/apt/lists/*")
    assert (setup, made.install) == (["one", "two"], ("three",))
    assert image_recipe(Environment(setup=("one",))).commands == ("one",)
    # an image of others' has no home folder for the sandboxes' user
    foreign = image_recipe(Environment(base="hub/image", setup=("one",))).commands
    assert foreign[0].startswith("mkdir -p /home/agent") and foreign[1:] == ("one",)


@pytest.mark.docker
async def test_an_environment_is_made_once_and_shared(store: ImageStore, task: Make) -> None:
    environment = Environment(setup=("date +%N > /etc/made",))
    one, other = task(environment), replace(task(environment), id="other")
    images = TaskImages(store)
    found: dict[str, TaskImage | None] = {}

    async def ask(each: Task) -> None:
        found[each.id] = await images.prepare(each)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, one)
        group.start_soon(ask, other)
    image = found[one.id]
    assert image is not None and image == found[other.id]
    assert image.snapshot is None and image.workdir == "/workspace" and not image.spec.writable_root
    assert await images.image(one) == image.tag
    assert await answer(image, one, "pwd; cat shop.py") == ["/workspace", "OFF = 0"]


@pytest.mark.docker
@pytest.mark.parametrize("workdir", ["/workspace", "/testbed"])
async def test_with_install_the_commit_is_in_the_image(
    store: ImageStore, task: Make, workdir: str
) -> None:
    environment = Environment(install=("cp shop.py built.py",), workdir=workdir)
    one = task(environment)
    image = await TaskImages(store).prepare(one)
    assert image is not None and image.snapshot is not None and image.spec.writable_root
    told = await answer(image, one, "cat built.py; git status --short; git log --all --format=%H")
    assert told == ["OFF = 0", one.base_commit]


@pytest.mark.docker
async def test_a_workdir_of_its_own_is_in_the_image(store: ImageStore, task: Make) -> None:
    one = task(Environment(workdir="/src"))
    image = await TaskImages(store).prepare(one)
    assert image is not None and image.spec.writable_root
    told = await answer(image, one, "pwd; echo x >> shop.py; git status --short")
    assert told == ["/src", " M shop.py"]


@pytest.mark.docker
async def test_a_ready_image_keeps_what_was_built_and_loses_the_future(
    store: ImageStore, task: Make, ready: str
) -> None:
    environment = Environment(base=ready, workdir="/testbed")
    one = task(environment, ready)
    image = await TaskImages(store).prepare(one)
    assert image is not None and image.tag != ready and image.snapshot is not None
    told = await answer(
        image,
        one,
        "id -u; pwd; cat shop.py built.so; git log --all --format=%H; git status --short; "
        "test ! -e .git/objects/ab/future && echo x >> shop.py && touch ~/x",
    )
    assert told == ["1000", "/testbed", "OFF = 0", "ready built.so", one.base_commit]


@pytest.mark.docker
async def test_an_image_without_an_environment_is_taken_as_it_is(
    store: ImageStore, task: Make, ready: str
) -> None:
    image = await TaskImages(store).prepare(task(None, ready))
    assert image == TaskImage(tag=ready, workdir="/workspace")
    assert await TaskImages(store).image(task(None)) is None


@pytest.mark.docker
async def test_a_recipe_serves_where_the_ready_image_is_not_to_be_had(
    store: ImageStore, task: Make
) -> None:
    absent = "localhost:1/eval.ada_1776_shop-12:latest"
    images = TaskImages(store)
    image = await images.prepare(task(Environment(setup=("true",)), absent))
    assert image is not None and image.snapshot is None
    for environment in (None, Environment(base=absent, test_command="true")):
        with pytest.raises(ImageError, match=f"image {absent} is not here and no registry gives"):
            await images.prepare(task(environment, absent))
    with pytest.raises(ImageError, match="base localhost:1/other is not here .*or use bookworm"):
        await images.prepare(task(Environment(base="localhost:1/other")))


@pytest.mark.docker
@pytest.mark.slow
async def test_debian_packages_and_pip_in_a_real_environment(store: ImageStore, task: Make) -> None:
    """On the older Debian, with what this machine lends to builds."""
    from patchgym.sandbox import BuildAccess

    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    environment = Environment(
        base="debian:bullseye",
        packages=("python3-pip",),
        setup=("python3 -m pip install six==1.16.0",),
    )
    async with ImageStore(access=access, prefix=store._prefix, folder=store.folder) as lent:
        one = task(environment)
        image = await TaskImages(lent).prepare(one)
        assert image is not None
        code = "import six, sys; print(six.__version__, *sys.version_info[:2])"
        assert await answer(image, one, f"python3 -c '{code}'") == ["1.16.0 3 9"]
