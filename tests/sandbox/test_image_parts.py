"""Recipes, loans, locks and the choice of what to evict: no daemon needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from patchgym.sandbox import (
    BuildAccess,
    CheckoutError,
    ImageError,
    ImageRecipe,
    ImageStore,
    SandboxSpec,
    SandboxUnavailable,
    SandboxUsageError,
    StoredImage,
    read_files,
)
from patchgym.sandbox.images.daemon import LocalImage
from patchgym.sandbox.images.lock import locked
from patchgym.sandbox.images.survey import (
    KIND_LABEL,
    SET_LABEL,
    Kind,
    rebuilt_on_demand,
    survey,
    to_evict,
)
from patchgym.sandbox.images.uses import Uses

Make = Callable[..., tuple[Path, str]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": " "},
        {"commands": ("",)},
        {"install": ("a\0b",)},
        {"environment": {"A=B": "c"}},
        {"files": {"/etc/passwd": b""}},
        {"files": {"../x": b""}},
        {"files": {".git/config": b""}},
        {"network": "host"},
        {"timeout": 0.0},
    ],
)
def test_impossible_recipes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SandboxUsageError):
        ImageRecipe(**wrong)  # type: ignore[arg-type]


def test_impossible_capabilities_are_refused() -> None:
    for name in ("chown", "CAP CHOWN", ""):
        with pytest.raises(SandboxUsageError, match="capabilities are names"):
            SandboxSpec(image="x", capabilities=(name,))


def test_a_key_names_the_content_of_a_layer() -> None:
    recipe = ImageRecipe(commands=("a", "b"), files={"r": b"1"}, environment={"X": "1", "Y": "2"})
    same = replace(recipe, environment={"Y": "2", "X": "1"}, timeout=5, install=("later",))
    assert recipe.key("id") == same.key("id")
    others = [
        recipe.key("other id"),
        replace(recipe, commands=("b", "a")).key("id"),
        replace(recipe, commands=("a b",)).key("id"),
        replace(recipe, files={"r": b"2"}).key("id"),
        replace(recipe, environment={}).key("id"),
    ]
    assert len({recipe.key("id"), *others}) == 6


async def test_files_of_a_commit(repository: Make, tmp_path: Path) -> None:
    root, commit = repository(
        {"requirements.txt": "old\n"}, {"requirements.txt": "new\n", "d/x": ""}
    )
    found = await read_files(root, commit, ["requirements.txt", "d/x"])
    assert found == {"requirements.txt": b"new\n", "d/x": b""}
    assert await read_files(root, f"{commit}~1", ["requirements.txt"]) == {
        "requirements.txt": b"old\n"
    }
    with pytest.raises(CheckoutError, match="no file missing.txt in commit"):
        await read_files(root, commit, ["missing.txt"])
    with pytest.raises(CheckoutError, match="d in commit .* is no regular file"):
        await read_files(root, commit, ["d"])


def test_what_this_machine_lends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels, bundle = tmp_path / "wheels", tmp_path / "ca.pem"
    wheels.mkdir()
    bundle.write_text("CA")
    settings = tmp_path / "pip.conf"
    settings.write_text(
        f"[global]\ncert = {bundle}\nfind-links = {wheels} https://links.invalid/x\n"
        "extra-index-url = file:///nowhere/simple https://u:p@index.invalid/simple\n"
        "timeout = 7\n"
    )
    for name in ("PIP_CERT", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    access = BuildAccess.of_this_machine()
    assert access.certificates == bundle and wheels in access.wheelhouses
    assert access.settings["timeout"] == "7"
    assert access.settings["find-links"] == "https://links.invalid/x"
    assert access.settings["extra-index-url"] == "https://u:p@index.invalid/simple"
    assert "u:p" not in repr(access)
    files = {name: content for name, content, _ in access.contents()}
    assert b"file:" not in bytes(files["pip.conf"])


def test_loans_that_are_not_there(tmp_path: Path) -> None:
    for access in (
        BuildAccess(certificates=tmp_path / "none"),
        BuildAccess(wheelhouses=(tmp_path / "none",)),
        BuildAccess(constraints=(tmp_path / "none",)),
    ):
        with pytest.raises(ImageError, match="none was to be lent to a build"):
            list(access.contents())


async def test_a_lock_has_so_many_holders(tmp_path: Path) -> None:
    holding, most = 0, 0
    two = anyio.Event()

    async def hold() -> None:
        nonlocal holding, most
        async with locked(tmp_path / "place", holders=2, within=30, purpose="try"):
            holding += 1
            most = max(most, holding)
            if holding == 2:
                two.set()
            await two.wait()
            holding -= 1

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(hold)
    assert (holding, most) == (0, 2)
    async with locked(tmp_path / "one", within=1, purpose="try"):
        with pytest.raises(SandboxUnavailable, match=r"waited 0 s to try: process \d+ is at it"):
            async with locked(tmp_path / "one", within=0.0, purpose="try"):
                pass


async def test_uses_are_shared_by_file(tmp_path: Path) -> None:
    one, two = (Uses(tmp_path / "u" / "uses.sqlite", "daemon") for _ in range(2))
    await one.touch("a", "b")
    await two.touch("a")
    times = await one.times()
    assert set(times) == {"a", "b"} and times["a"] >= times["b"]
    assert await Uses(tmp_path / "u" / "uses.sqlite", "other").times() == {}
    await two.forget("a", "never")
    assert set(await one.times()) == {"b"}


def stored(tag: str, used: float, *, parent: str = "", size: int = 10, in_use: bool = False,
           kind: Kind = "repository") -> StoredImage:  # fmt: skip
    """An image whose id is its tag."""
    return StoredImage(
        tag=tag, id=tag, kind=kind, parent=parent, size=size, last_used=used, in_use=in_use
    )


def tags(images: tuple[StoredImage, ...]) -> list[str]:
    """Names in their order."""
    return [image.tag for image in images]


def test_the_least_recently_used_go_first() -> None:
    images = [stored("new", 3), stored("old", 1), stored("middle", 2)]
    assert tags(to_evict(images, 30, 9)) == []
    assert tags(to_evict(images, 29, 9)) == ["old"]
    assert tags(to_evict(images, 10, 9)) == ["old", "middle"]
    assert tags(to_evict(images, 0, 9)) == ["old", "middle", "new"]
    assert tags(to_evict(images, 0, 2)) == ["old", "middle"]


def test_what_carries_or_runs_stays() -> None:
    images = [
        stored("recipe", 1, kind="recipe"),
        stored("a", 2, parent="recipe"),
        stored("b", 3, parent="recipe"),
        stored("supervised b", 3, parent="b", kind="supervised", size=0),
    ]
    assert tags(to_evict(images, 0, 9)) == ["a", "supervised b", "b", "recipe"]
    images[3] = replace(images[3], in_use=True)
    assert tags(to_evict(images, 0, 9)) == ["a"]


def test_snapshots_and_strangers_are_not_evicted_by_a_build() -> None:
    images = [
        stored("recipe", 1, kind="recipe"),
        stored("snapshot", 1, kind="snapshot", parent="recipe"),
        stored("supervised recipe", 1, kind="supervised", parent="recipe"),
        stored("supervised base", 1, kind="supervised", parent="base"),
    ]
    assert tags(rebuilt_on_demand(images)) == ["recipe", "supervised recipe"]


def test_survey() -> None:
    def image(tag: str, parent: str, size: int, **labels: str) -> LocalImage:
        return LocalImage(id=tag, tag=tag, parent=parent, size=size, created=5.0, labels=labels)

    of_set = {SET_LABEL: "patchgym", KIND_LABEL: "recipe"}
    listing = [
        image("debian:12", "", 100),
        image("patchgym/recipe:k", "debian:12", 130, **of_set),
        image("patchgym/repository:k", "patchgym/recipe:k", 131, **of_set),
        image("patchgym/supervised:k", "patchgym/repository:k", 132, **of_set),
        image("patchgym/supervised:b", "debian:12", 101),
        image("patchgym/supervised:x", "x/recipe:k", 101, **{SET_LABEL: "x"}),
        image("x/recipe:k", "debian:12", 100, **{SET_LABEL: "x"}),
    ]
    used = {"patchgym/repository:k": 7.0}
    found = survey(listing, used, {"patchgym/repository:k"}, prefix="patchgym")
    assert {(i.tag, i.kind, i.size, i.last_used, i.in_use) for i in found} == {
        ("patchgym/recipe:k", "recipe", 30, 5.0, True),
        ("patchgym/repository:k", "repository", 1, 7.0, True),
        ("patchgym/supervised:k", "supervised", 1, 7.0, False),
        ("patchgym/supervised:b", "supervised", 1, 5.0, False),
    }
    assert len(survey(listing, used, (), prefix="x")) == 2


async def test_a_cache_folder_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database")
    with pytest.raises(SandboxUsageError, match="can't keep locks in .*: File exists"):
        async with locked(tmp_path / "file" / "x", within=1, purpose="try"):
            pass
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(SandboxUsageError, match="can't keep uses in"):
            await Uses(path, "daemon").times()
    with pytest.raises(SandboxUsageError, match="a prefix is like my-images"):
        ImageStore(prefix="Mine/x")
