"""Images that are built in sandboxes: what is in them, what is not, and who builds and evicts."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from patchgym.sandbox import (
    BuildAccess,
    CheckoutError,
    Engine,
    ImageError,
    ImageRecipe,
    ImageStore,
    Pool,
    SandboxSpec,
    SandboxUsageError,
    mirror,
)
from patchgym.sandbox.reaper import current_owner

from .conftest import WAIT, git
from .test_checkout import lines

pytestmark = pytest.mark.docker
Make = Callable[..., tuple[Path, str]]
SECRET = "s3cret-of-this-machine"
EMPTY = ImageRecipe(network="none")


def docker(*words: str) -> str:
    """What the docker command prints."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


def inspect(image: str) -> dict[str, Any]:
    """What Docker knows of an image."""
    facts: dict[str, Any] = json.loads(docker("inspect", image))[0]
    return facts


def builders() -> list[str]:
    """Containers of this process's builds."""
    owner = f"label=patchgym.owner.pid={current_owner().pid}"
    return docker("ps", "-aq", "--filter", owner, "--filter", "name=-build").split()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody tells us of."""
    while True:
        if holds():
            return
        await anyio.sleep(0.1)


@pytest.fixture
def prefix(docker_image: str) -> Iterator[str]:
    """A set of images of this test's own, gone after it."""
    name = f"patchgym-test-{secrets.token_hex(4)}"
    yield name
    label = f"label=patchgym.image.set={name}"
    left = docker("images", "--filter", label, "--format", "{{.Repository}}:{{.Tag}}").split()
    for kind in ("patchgym/snapshot:", "patchgym/supervised:", f"{name}/"):
        for tag in left:
            if tag.startswith(kind):
                docker("rmi", tag)


@pytest.fixture
async def store(prefix: str, tmp_path: Path) -> AsyncIterator[ImageStore]:
    """A store with a folder of its own."""
    async with ImageStore(prefix=prefix, folder=tmp_path / "store") as store:
        yield store


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    """A folder with one wheel."""
    folder = tmp_path / "wheelhouse-of-this-machine"
    folder.mkdir()
    facts = "lent_wheel-1.0.dist-info"
    with zipfile.ZipFile(folder / "lent_wheel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lent_wheel.py", "VALUE = 41 + 1\n")
        wheel.writestr(
            f"{facts}/METADATA", "Metadata-Version: 2.1\nName: lent-wheel\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{facts}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{facts}/RECORD", "")
    return folder


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_lease_starts_with_the_repository(store: ImageStore, repository: Make) -> None:
    root, fix = repository({"a.py": "old\n"}, {"a.py": "bug\n", "d/b": b"\xff"}, {"a.py": "fix\n"})
    git(root, "tag", "v1")
    git(root, "remote", "add", "origin", "https://localhost/x")
    commit = git(root, "rev-parse", "HEAD~1")
    recipe = ImageRecipe(
        network="none",
        commands=("echo made > /etc/made && chown 1000:1000 /etc/made", "test $(id -u) = 0"),
    )
    baked = await store.bake(root, commit, recipe)
    assert baked.built and baked.commit == commit
    spec = SandboxSpec(image=baked.image, writable_root=True, workdir=baked.workdir)
    async with Pool(spec, size=1) as pool:
        async with pool.lease(timeout=WAIT, snapshot=baked.snapshot) as sandbox:
            assert await lines(sandbox, "pwd; cat a.py /etc/made") == ["/workspace", "bug", "made"]
            assert await lines(sandbox, "git log --all --format=%H") == [commit]
            assert await lines(sandbox, "git diff-files --name-only; git status --short") == []
            assert await lines(sandbox, "git remote; git tag; git reflog --all") == []
            assert await lines(sandbox, "git fsck --unreachable --no-reflogs 2>&1") == []
            assert (await sandbox.run(["git", "cat-file", "-e", fix], timeout=10)).exit_code != 0
            assert (
                await lines(sandbox, "find . ! -user 1000 -o ! -group 1000; find /tmp -type f")
                == []
            )
            await lines(sandbox, "echo more >> a.py; echo x >> /etc/made")
            assert b"+more" in await sandbox.diff()
        async with pool.lease(timeout=WAIT, snapshot=baked.snapshot) as sandbox:
            assert await lines(sandbox, "cat a.py /etc/made") == ["bug", "made"]


async def test_layers_are_shared_and_built_once(store: ImageStore, repository: Make) -> None:
    root, commit = repository({"a": "1"}, {"a": "2"})
    built: list[bool] = []

    async def ask(name: str) -> None:
        built.append((await store.bake(root, name, EMPTY)).built)

    async with anyio.create_task_group() as tasks:
        for name in (commit, commit, "HEAD", f"{commit}~1", f"{commit}~1"):
            tasks.start_soon(ask, name)
    assert sorted(built) == [False, False, False, True, True]
    new, old = [await store.bake(root, name, EMPTY) for name in (commit, f"{commit}~1")]
    assert new.recipe_image == old.recipe_image and not new.built and new.image != old.image
    layers = [inspect(image)["RootFS"]["Layers"] for image in (new.image, old.image)]
    assert layers[0][:-1] == layers[1][:-1] == inspect(new.recipe_image)["RootFS"]["Layers"]
    kinds = [image.kind for image in await store.images()]
    assert sorted(kinds) == ["recipe", "repository", "repository"]


async def test_two_processes_build_once(prefix: str, repository: Make, tmp_path: Path) -> None:
    root, commit = repository({"a": "1"})
    program = f"""
import anyio
from pathlib import Path
from patchgym.sandbox import ImageRecipe, ImageStore
async def main():
    async with ImageStore(prefix={prefix!r}, folder=Path({str(tmp_path / "s")!r})) as store:
        recipe = ImageRecipe(network="none")
        print((await store.bake(Path({str(root)!r}), {commit!r}, recipe)).built)
anyio.run(main)
"""
    answers: list[bytes] = []

    async def run() -> None:
        answers.append((await anyio.run_process([sys.executable, "-c", program])).stdout.strip())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        tasks.start_soon(run)
    assert sorted(answers) == [b"False", b"True"]


async def test_what_was_lent_is_not_in_the_image(
    prefix: str, repository: Make, wheelhouse: Path, tmp_path: Path
) -> None:
    root, commit = repository({"requirements.txt": "lent-wheel==1.0\n"})
    bundle = tmp_path / "bundle-of-this-machine.pem"
    bundle.write_text(f"-----{SECRET}-----\n")
    access = BuildAccess(
        settings={
            "no-index": "true",
            "extra-index-url": f"https://u:{SECRET}@index.invalid/simple",
        },
        wheelhouses=(wheelhouse,),
        certificates=bundle,
        environment={"NO_PROXY": SECRET},
    )
    recipe = ImageRecipe(
        network="none",
        files={"requirements.txt": b"lent-wheel==1.0\n"},
        environment={"BUILD_TOKEN": SECRET},
        commands=(
            "pip install -r requirements.txt",
            f'test "$BUILD_TOKEN" = {SECRET} && grep -q {SECRET} "$PIP_CERT" && test "$NO_PROXY"',
        ),
    )
    async with ImageStore(prefix=prefix, folder=tmp_path / "store", access=access) as store:
        baked = await store.bake(root, commit, recipe)
    for image in (baked.image, baked.recipe_image):
        told = docker("inspect", image) + docker("history", "--no-trunc", image)
        for trace in (SECRET, "patchgym-build", "PIP_", "TOKEN", "this-machine", str(tmp_path)):
            assert trace not in told
    config = inspect(baked.image)["Config"]
    assert not config["Env"] and not config["Entrypoint"] and config["Cmd"] == ["/bin/sh"]
    assert (config["User"], config["WorkingDir"]) == ("1000:1000", "/workspace")
    assert inspect(baked.recipe_image)["Config"]["User"] == "0:0"
    spec = SandboxSpec(
        image=baked.image, writable_root=True, user="0:0", capabilities=("DAC_OVERRIDE",),
        memory_mib=1024,
    )  # fmt: skip
    traces = (SECRET, "patchgym-build", "BUILD_TOKEN", "wheelhouse-of-this-machine")
    wanted = " ".join(f"-e {trace}" for trace in traces)
    names = " -o ".join(
        f"-name '*{trace}*'" for trace in (*traces, "pip.conf", "pip*.whl", "certificates.pem")
    )
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        found = await lines(sandbox, "python3 -c 'import lent_wheel; print(lent_wheel.VALUE)'")
        assert found == ["42"]
        assert await lines(sandbox, f"find / -xdev \\( {names} \\) -print") == []
        places = "$(ls -d /* | grep -v -x -e /proc -e /sys -e /dev)"
        done = await sandbox.run(f"grep -rlaF {wanted} {places}", timeout=120)
        assert (done.exit_code, done.stdout.head, done.stderr.head) == (1, b"", b"")
        assert SECRET not in "".join(await lines(sandbox, "env"))


async def test_install_runs_in_the_repository(store: ImageStore, repository: Make) -> None:
    root, commit = repository({"a.py": "1\n"})
    recipe = ImageRecipe(
        network="none", install=("test -f a.py && mkdir x.egg-info && echo 1 > x.egg-info/y",)
    )
    baked = await store.bake(root, commit, recipe)
    plain = await store.bake(root, commit, EMPTY)
    assert baked.recipe_image == plain.recipe_image and baked.image != plain.image
    spec = SandboxSpec(image=baked.image, writable_root=True)
    async with Pool(spec, size=1) as pool:
        async with pool.lease(timeout=WAIT, snapshot=baked.snapshot) as sandbox:
            assert await lines(sandbox, "cat x.egg-info/y; find . ! -user 1000") == ["1"]
            assert await lines(sandbox, "git status --short; git diff-files --name-only") == []
            assert await sandbox.diff() == b""


async def test_a_build_that_fails(store: ImageStore, repository: Make) -> None:
    root, commit = repository({"a": "1"})
    recipe = ImageRecipe(
        network="none", commands=("echo all well", "echo first; echo the reason >&2; exit 7")
    )
    with pytest.raises(ImageError) as caught:
        await store.bake(root, commit, recipe)
    text = str(caught.value)
    assert "command 2 of 2" in text and "exit code 7: the reason; log: " in text
    log = await anyio.Path(text.rpartition("log: ")[2]).read_text()
    assert "$ echo all well\nall well\n[exit code 0" in log and "first\nthe reason\n" in log
    assert await store.images() == () and builders() == []
    for command in ("kill -9 $$", "sleep 600 & setsid sleep 600"):
        slow = ImageRecipe(network="none", commands=(command,), timeout=6)
        with pytest.raises(ImageError, match="signal 9|timeout|not built within 6 s"):
            await store.environment(slow)
    assert builders() == []


async def test_a_build_that_is_cancelled(store: ImageStore) -> None:
    with anyio.move_on_after(3) as scope:
        await store.environment(ImageRecipe(network="none", commands=("sleep 600",)))
    assert scope.cancelled_caught and builders() == [] and await store.images() == ()
    assert await store.environment(EMPTY)  # its lock is free, and so is its place


async def test_a_build_whose_process_is_killed(prefix: str, tmp_path: Path) -> None:
    program = f"""
import anyio
from pathlib import Path
from patchgym.sandbox import ImageRecipe, ImageStore
async def main():
    async with ImageStore(prefix={prefix!r}, folder=Path({str(tmp_path / "s")!r})) as store:
        await store.environment(ImageRecipe(network="none", commands=("touch /x; sleep 600",)))
anyio.run(main)
"""
    process = await anyio.open_process([sys.executable, "-c", program])
    owner = f"patchgym.owner.pid={process.pid}"
    with anyio.fail_after(WAIT):
        await until(lambda: docker("ps", "-q", "--filter", f"label={owner}") != "")
        process.kill()
        await process.wait()
        await until(lambda: docker("ps", "-aq", "--filter", f"label={owner}") == "")
    await process.aclose()
    async with ImageStore(prefix=prefix, folder=tmp_path / "s") as store:
        assert await store.environment(EMPTY)  # the dead process holds no lock


async def test_what_can_not_be_built(prefix: str, repository: Make, tmp_path: Path) -> None:
    root, commit = repository({"a": "1"})
    async with ImageStore(prefix=prefix, folder=tmp_path / "s", disk_floor=1 << 60) as store:
        with pytest.raises(ImageError, match=r"disk has .* GB free, and a build needs"):
            await store.bake(root, commit, EMPTY)
        with pytest.raises(ImageError, match="no local image no/such:image"):
            await store.environment(ImageRecipe(base="no/such:image"))
        with pytest.raises(CheckoutError):
            await store.bake(root, "nonsense", EMPTY)
        for workdir in ("/", "relative", "/tmp", "/a/.."):
            with pytest.raises(SandboxUsageError, match="workdir must be an absolute folder"):
                await store.bake(root, commit, EMPTY, workdir=workdir)
    with pytest.raises(SandboxUsageError):
        ImageStore(builds=0)


async def test_eviction_spares_what_is_in_use(
    prefix: str, repository: Make, tmp_path: Path
) -> None:
    root, commit = repository({"a": "1"}, {"a": "2"}, {"a": "3"})
    async with ImageStore(prefix=prefix, folder=tmp_path / "s", keep=0) as store:
        used, other = [await store.bake(root, f"{commit}~{n}", EMPTY) for n in (0, 1)]
        assert len(await store.prune()) == 0  # both were asked for a moment ago
        spec = SandboxSpec(image=used.image, writable_root=True)
        async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
            saved = await sandbox.snapshot()
            gone = {image.tag for image in await store.prune(grace=0)}
            assert gone == {saved.image, other.image}
            left = {image.kind: image.in_use for image in await store.images()}
            assert left == {"recipe": True, "repository": True, "supervised": True}
        kinds = [image.kind for image in await store.prune(grace=0)]
        assert kinds == ["supervised", "repository", "recipe"]
        assert await store.images() == ()
        assert (await store.bake(root, commit, EMPTY)).built


async def test_credentials_stay_on_the_host(
    store: ImageStore, repository: Make, tmp_path: Path
) -> None:
    root, commit = repository({"a": "1"})
    git(root, "remote", "add", "origin", f"https://ada:{SECRET}@git.invalid/private.git")
    git(root, "config", "http.extraHeader", f"Authorization: Basic {SECRET}")
    git(root, "config", "credential.helper", f"!echo password={SECRET}")
    place = await mirror(root.as_uri(), folder=tmp_path / "mirrors")
    git(place, "config", "http.extraHeader", f"Authorization: Basic {SECRET}")
    baked = await store.bake(place, commit, EMPTY)
    spec = SandboxSpec(image=baked.image, writable_root=True)
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        config = "\n".join(await lines(sandbox, "git config --list --show-origin; env"))
        for trace in (SECRET, "git.invalid", "http.", "credential", "remote.", str(tmp_path)):
            assert trace not in config
        done = await sandbox.run(f"grep -rlaF -e {SECRET} -e git.invalid . /etc /home", timeout=60)
        assert done.stdout.head == b""
    told = docker("inspect", baked.image) + docker("history", "--no-trunc", baked.image)
    assert SECRET not in told and str(tmp_path) not in told


async def test_images_have_no_owner_to_be_swept_with(store: ImageStore, repository: Make) -> None:
    root, commit = repository({"a": "1"})
    baked = await store.bake(root, commit, EMPTY)
    engine = Engine()
    made = docker("create", baked.image).strip()
    try:
        ours = await engine.containers({"patchgym.kit": "sandbox"})
        name = docker("inspect", "--format", "{{.Name}}", made).strip().lstrip("/")
        assert name not in [container.name for container in ours]
    finally:
        docker("rm", made)
        engine.close()
