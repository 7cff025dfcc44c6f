"""Checks of checkouts: one commit is there, and neither its past nor its future."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox import CheckoutError

from .contract import SandboxLike
from .expect import STEP, demand, expect, printed, refusal, same
from .repositories import git, repository


@demand("git", "a checkout holds one commit, and no object of any other")
async def one_commit(sandbox: SandboxLike) -> None:
    async with repository({"a": "old"}, {"a": "bug", "d/b": b"\xff"}, {"a": "fix"}) as (root, fix):
        base = await git(root, "rev-parse", "HEAD~1")
        await sandbox.checkout(root, base)
    same("commits", (await printed(sandbox, "git log --all --format=%H")).split(), [base])
    objects = "git cat-file --batch-all-objects --batch-check='%(objecttype)' | sort | uniq -c"
    same("objects", (await printed(sandbox, objects)).split(), "2 blob 1 commit 2 tree".split())
    same("unreachable", await printed(sandbox, "git fsck --unreachable --no-reflogs 2>&1"), "")
    for name in (fix, f"{fix}^{{tree}}", f"{base}~1"):
        done = await sandbox.run(["git", "cat-file", "-e", name], timeout=STEP)
        expect(not done.ok, f"{name} is there: the future, or the past")


@demand("git", "no tag, remote, reflog, stash or other branch comes along")
async def no_references(sandbox: SandboxLike) -> None:
    async with repository({"a": "1"}, {"a": "2"}) as (root, commit):
        await git(root, "tag", "v1")
        await git(root, "branch", "other")
        await git(root, "remote", "add", "origin", "https://localhost/x")
        await sandbox.checkout(root, commit)
    for command in ("git tag", "git remote", "git reflog --all", "git stash list"):
        same(command, await printed(sandbox, command), "")
    same("references", len((await printed(sandbox, "git for-each-ref")).splitlines()), 1)
    left = "cd .git; ls -d logs FETCH_HEAD ORIG_HEAD packed-refs 2>/dev/null | xargs -r cat | wc -c"
    same("bytes in logs and old heads", await printed(sandbox, left), "0\n")


@demand("git", "a checkout is clean, writable, and knows who commits")
async def clean_checkout(sandbox: SandboxLike) -> None:
    async with repository({"a": "1\n", "d/b": "2\n", ".gitignore": "junk\n"}) as (root, commit):
        await sandbox.checkout(root, commit)
    same("status", await printed(sandbox, "git status --porcelain"), "")
    same("diff()", await sandbox.diff(), b"")
    await printed(
        sandbox, "echo x >>a && rm d/b && git commit -qam mine && git log -1 --format=%an"
    )
    same("HEAD", await printed(sandbox, "git rev-list --count HEAD"), "2\n")


@demand("git", "modes, links and odd names are as committed")
async def modes_and_links(sandbox: SandboxLike) -> None:
    async with repository({"run.sh": "#!/bin/sh\necho ran\n", "späte ☃ \n.txt": "x"}) as (root, _):
        await anyio.to_thread.run_sync(_add_link, root)
        await git(root, "add", "-A")
        await git(root, "commit", "-q", "-m", "modes")
        await sandbox.checkout(root, "HEAD")
    same("./link; status", await printed(sandbox, "./link; git status --porcelain"), "ran\n")
    await printed(sandbox, "test -L link")


def _add_link(root: Path) -> None:
    (root / "run.sh").chmod(0o755)
    os.symlink("run.sh", root / "link")


@demand("git", "a second checkout leaves nothing of the first")
async def second_checkout(sandbox: SandboxLike) -> None:
    async with repository({"a": "1", ".gitignore": "ignored\n"}, {"b": "2"}) as (root, commit):
        await sandbox.checkout(root, commit)
        await printed(sandbox, "mkdir x; touch x/y ignored .hidden; rm a; git tag mine")
        await sandbox.checkout(root, await git(root, "rev-parse", "HEAD~1"))
    same("files", (await printed(sandbox, "ls -A; git tag")).split(), [".git", ".gitignore", "a"])


@demand("git", "a commit or a repository that is not there raises CheckoutError")
async def missing_commit(sandbox: SandboxLike) -> None:
    async with repository({"a": "1"}) as (root, _):
        for place, commit in ((root, "0" * 40), (root, "nonsense"), (root / "none", "HEAD")):
            with refusal(f"checkout of {commit[:9]}", CheckoutError):
                await sandbox.checkout(place, commit)
        await sandbox.checkout(root, "HEAD")


@demand("git", "diff() tells all changes: edited, new, deleted, binary, modes; nothing ignored")
async def diff_tells_all(sandbox: SandboxLike) -> None:
    files: dict[str, str | bytes] = {"a": "1\n2\n3\n", "gone": "x\n", "bin": b"\0\1"}
    async with repository({**files, ".gitignore": "junk\n"}) as (root, commit):
        await sandbox.checkout(root, commit)
        change = "sed -i 's/2/two/' a; rm gone; mkdir n; printf '\\0\\2' >bin; printf new >n/f"
        await printed(sandbox, f"{change}; chmod +x a; touch junk; git add a")
        diff = await sandbox.diff()
        for part in (b"+two", b"new mode 100755", b"GIT binary patch", b"deleted file", b"n/f"):
            expect(part in diff, f"{part!r} is not in the diff")
        expect(b"b/junk" not in diff, "an ignored file is in the diff")
        await sandbox.checkout(root, commit)
        applied = await sandbox.apply_patch(diff)
        same("paths", applied.paths, ("a", "bin", "gone", "n/f"))
    same("diff() of the diff applied", await sandbox.diff(), diff)


@demand("git", "diff() sees what was committed since, and leaves the index as it was")
async def diff_after_commits(sandbox: SandboxLike) -> None:
    async with repository({"a": "1\n"}) as (root, commit):
        await sandbox.checkout(root, commit)
    await printed(sandbox, "echo 2 >>a; git commit -qam mine; echo 3 >>a; echo n >new")
    before = await printed(sandbox, "git status --porcelain")
    diff = await sandbox.diff()
    expect(b"+2\n+3\n" in diff and b"b/new" in diff, "a committed or a new line is not in it")
    same("status", await printed(sandbox, "git status --porcelain"), before)


@demand("git", "diff() without a checkout, or with a ruined one, raises SandboxUsageError")
async def diff_without_checkout(sandbox: SandboxLike) -> None:
    with refusal("diff() before checkout()"):
        await sandbox.diff()
    async with repository({"a": "1\n"}) as (root, commit):
        await sandbox.checkout(root, commit)
    await printed(sandbox, "rm -rf .git")
    with refusal("diff() without .git"):
        await sandbox.diff()
