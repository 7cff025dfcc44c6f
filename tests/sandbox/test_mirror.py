"""Mirrors are made on the host; what they were made with stays there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.sandbox import CheckoutError, SandboxUsageError, mirror, snapshot

from .conftest import git

Make = Callable[..., tuple[Path, str]]


def everything_below(folder: Path) -> str:
    """All names and contents in one text."""
    texts = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*map(str, folder.rglob("*")), *texts])


async def test_a_mirror_follows_its_source(repository: Make, tmp_path: Path) -> None:
    root, first = repository({"a": "1"})
    git(root, "tag", "v1")
    place = await mirror(root.as_uri(), folder=tmp_path / "mirrors")
    assert (await snapshot(place, first)).commit == first
    (root / "a").write_text("2")
    git(root, "commit", "-qam", "second")
    git(root, "branch", "other")
    second = git(root, "rev-parse", "HEAD")
    assert await mirror(root.as_uri(), folder=tmp_path / "mirrors") == place
    assert (await snapshot(place, second)).commit == second
    git(root, "branch", "-D", "other")
    await mirror(root.as_uri(), folder=tmp_path / "mirrors")
    names = git(place, "for-each-ref", "--format=%(refname)").split()
    assert names == ["refs/heads/main", "refs/tags/v1"]


async def test_a_commit_that_is_there_needs_no_source(repository: Make, tmp_path: Path) -> None:
    root, commit = repository({"a": "1"})
    place = await mirror(str(root), folder=tmp_path / "mirrors", commit=commit)
    root.rename(tmp_path / "gone")
    assert await mirror(str(root), folder=tmp_path / "mirrors", commit=commit) == place
    with pytest.raises(CheckoutError, match="can't mirror"):
        await mirror(str(root), folder=tmp_path / "mirrors")


async def test_a_commit_on_no_branch(repository: Make, tmp_path: Path) -> None:
    root, commit = repository({"a": "1"}, {"a": "2"})
    git(root, "reset", "-q", "--hard", "HEAD~1")
    git(root, "config", "uploadpack.allowAnySHA1InWant", "true")
    place = await mirror(root.as_uri(), folder=tmp_path / "mirrors", commit=commit)
    assert (await snapshot(place, commit)).commit == commit


async def test_what_can_not_be_mirrored(repository: Make, tmp_path: Path) -> None:
    root, _ = repository({"a": "1"})
    for source in ("", "relative", "--upload-pack=touch x", "ext::sh -c true", "a@b::c"):
        with pytest.raises(SandboxUsageError, match="not the address of a git repository"):
            await mirror(source, folder=tmp_path / "mirrors")
    with pytest.raises(SandboxUsageError, match="full id"):
        await mirror(str(root), folder=tmp_path / "mirrors", commit="HEAD")
    with pytest.raises(CheckoutError, match="can't mirror .*0000"):
        await mirror(str(root), folder=tmp_path / "mirrors", commit="0" * 40)


async def test_an_address_with_a_password(tmp_path: Path) -> None:
    with pytest.raises(CheckoutError) as caught:
        await mirror("http://ada:s3cret@127.0.0.1:1/x.git", folder=tmp_path)
    assert "s3cret" not in str(caught.value) and "127.0.0.1:1" in str(caught.value)
    assert "s3cret" not in everything_below(tmp_path)
