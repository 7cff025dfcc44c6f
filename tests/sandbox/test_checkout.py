"""A checkout holds one commit and nothing else of the repository's history."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.sandbox import CheckoutError, PatchError, Sandbox, SandboxUsageError, snapshot

Make = Callable[..., tuple[Path, str]]


async def lines(sandbox: Sandbox, command: str) -> list[str]:
    """What a command prints, by line; it must succeed."""
    done = await sandbox.run(command, timeout=30)
    assert done.ok, done.stderr.text()
    return done.stdout.text().splitlines()


@pytest.mark.docker
async def test_one_commit_and_no_other_object(sandbox: Sandbox, repository: Make) -> None:
    root, fix = repository({"a.py": "old\n"}, {"a.py": "bug\n", "d/b": b"\xff"}, {"a.py": "fix\n"})
    from .conftest import git

    git(root, "tag", "v1")
    git(root, "remote", "add", "origin", "https://localhost/x")
    git(root, "branch", "other", fix)
    base = git(root, "rev-parse", "HEAD~1")
    await sandbox.checkout(root, base)
    assert await lines(sandbox, "git log --all --format=%H") == [base]
    assert await lines(sandbox, "git status --porcelain") == []
    assert await lines(sandbox, "git remote; git tag; git stash list; git reflog --all") == []
    assert await lines(sandbox, "git for-each-ref --format='%(refname)'") == ["refs/heads/main"]
    objects = "git cat-file --batch-all-objects --batch-check='%(objecttype)' | sort | uniq -c"
    assert [line.split() for line in await lines(sandbox, objects)] == [
        ["2", "blob"], ["1", "commit"], ["2", "tree"],
    ]  # fmt: skip
    assert await lines(sandbox, "git fsck --unreachable --no-reflogs 2>&1") == []
    assert (await sandbox.run(["git", "cat-file", "-e", fix], timeout=10)).exit_code != 0
    assert await lines(sandbox, "cat a.py; git config gc.auto") == ["bug", "0"]
    # the index is fresh: git need not read the files again to know that they are unchanged
    assert await lines(sandbox, "git diff-files --name-only") == []


@pytest.mark.docker
async def test_a_second_checkout_leaves_nothing_of_the_first(
    sandbox: Sandbox, repository: Make
) -> None:
    root, commit = repository({"a": "1", ".gitignore": "ignored\n"})
    await sandbox.checkout(root, commit)
    await sandbox.run("mkdir x; touch x/y ignored .hidden; chmod 0 x; rm a", timeout=10)
    await sandbox.run("chmod 700 x", timeout=10)
    await sandbox.checkout(root, "HEAD")
    assert sorted(await lines(sandbox, "ls -A")) == [".git", ".gitignore", "a"]


@pytest.mark.docker
async def test_modes_links_and_odd_names(sandbox: Sandbox, repository: Make) -> None:
    root, _ = repository({"run.sh": "#!/bin/sh\necho ran\n", "späte ☃ \n.txt": "x"})
    from .conftest import git

    (root / "run.sh").chmod(0o755)
    os.symlink("run.sh", root / "link")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "modes")
    await sandbox.checkout(root, "HEAD")
    assert await lines(sandbox, "./link; git status --porcelain") == ["ran"]


@pytest.mark.docker
async def test_diff_tells_all_changes_and_applies_again(sandbox: Sandbox, repository: Make) -> None:
    root, commit = repository({"a": "1\n2\n3\n", "gone": "x\n", "bin": b"\0\1"})
    await sandbox.checkout(root, commit)
    assert await sandbox.diff() == b""
    change = "sed -i 's/2/two/' a; rm gone; mkdir n; printf '\\0\\2' > bin; printf new > n/f"
    await lines(sandbox, change + "; mkdir __pycache__; touch __pycache__/a.pyc; chmod +x a")
    await lines(sandbox, "git add a; git config core.fsmonitor 'touch /tmp/ran'")
    diff = await sandbox.diff()
    assert b"__pycache__" not in diff and b"GIT binary patch" in diff and b"+two" in diff
    await sandbox.checkout(root, commit)
    applied = await sandbox.apply_patch(diff)
    assert (applied.rung, applied.paths) == ("exact", ("a", "bin", "gone", "n/f"))
    assert await sandbox.diff() == diff
    big = "head -c 7500000 /dev/urandom > big"
    await lines(sandbox, big)
    with pytest.raises(PatchError, match="over 8 MiB"):
        await sandbox.diff()


@pytest.mark.docker
async def test_a_broken_git_folder_is_an_error(sandbox: Sandbox, repository: Make) -> None:
    with pytest.raises(SandboxUsageError, match="checkout"):
        await sandbox.diff()
    root, commit = repository({"a": "1\n"})
    await sandbox.checkout(root, commit)
    await sandbox.run("rm -rf .git", timeout=10)
    with pytest.raises(SandboxUsageError):
        await sandbox.diff()


async def test_snapshots_are_cached_and_reproducible(repository: Make) -> None:
    root, commit = repository({"a": "1"}, {"a": "2"})
    first = await snapshot(root, commit)
    assert await snapshot(root, commit) is first
    assert (await snapshot(root, "HEAD")) is first
    assert (await snapshot(root, "HEAD~1")).commit != commit


async def test_what_is_not_there(repository: Make, tmp_path: Path) -> None:
    root, _ = repository({"a": "1"})
    for place, commit in ((root, "0" * 40), (root, "nonsense"), (tmp_path / "none", "HEAD")):
        with pytest.raises(CheckoutError):
            await snapshot(place, commit)
