"""Checks of patches: what applies, how leniently, and what is refused whole."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox import PatchError

from .contract import SandboxLike
from .expect import STEP, Unmet, demand, expect, printed, same
from .repositories import git, repository

TEXT = "one\ntwo\nthree\n"
DIFF = (
    b"diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n"
    b"@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"
)
DONE = b"one\nzwei\nthree\n"


def new_file(path: str, content: str = "x", mode: str = "100644") -> bytes:
    """A diff that adds a file of one line."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{content}\n"
    ).encode()


REFUSED = {
    "into .git": new_file(".git/hooks/pre-commit"),
    "into .GIT": new_file("d/.GIT/config"),
    "above the work tree": new_file("../x"),
    "above it, by a detour": new_file("d/../../x"),
    "absolute": b"--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n",
    "above it, quoted": b'--- /dev/null\n+++ "b/..\\057x"\n@@ -0,0 +1 @@\n+x\n',
    "through a link": new_file("out/x"),
    "through a link of its own": new_file("l", "d", "120000") + new_file("l/x"),
    "a link that leads out": new_file("l", "/etc", "120000"),
    "a submodule": new_file("m", "Subproject commit " + "0" * 40, "160000"),
    "a rename into .git": b"diff --git a/f.txt b/.git/x\nsimilarity index 100%\n"
    b"rename from f.txt\nrename to .git/x\n",
}
UNFIT = {
    "no diff": (b"I changed add() as asked.\n", "malformed"),
    "garbage in a hunk": (DIFF.replace(b" three\n", b"three\n"), "malformed"),
    "other context": (DIFF.replace(b" three", b" four"), "mismatch"),
    "a missing file": (DIFF.replace(b"f.txt", b"g.txt"), "mismatch"),
    "a file that is there already": (new_file("f.txt"), "mismatch"),
    "one good file, one bad": (
        DIFF + DIFF.replace(b"f.txt", b"d/g").replace(b"two", b"2"), "mismatch",
    ),
    "too large": (new_file("big", "x" * (9 << 20)), "too_large"),
}  # fmt: skip


async def reason(sandbox: SandboxLike, diff: bytes) -> str:
    """Why the diff was refused; Unmet when it was not."""
    try:
        await sandbox.apply_patch(diff)
    except PatchError as problem:
        return problem.reason
    raise Unmet("it was applied")


@demand("patches", "a diff that fits is applied exactly, with its paths told")
async def exact(sandbox: SandboxLike) -> None:
    for diff in (DIFF, b"Here you are:\n" + DIFF, DIFF.split(b"\n", 1)[1], DIFF[:-1]):
        async with repository({"f.txt": TEXT}) as (root, commit):
            await sandbox.checkout(root, commit)
        applied = await sandbox.apply_patch(diff)
        same("rung and paths", (applied.rung, applied.paths), ("exact", ("f.txt",)))
        same("file", await sandbox.read("f.txt"), DONE)


@demand("patches", "wrong line counts are recounted, and the rung is named")
async def recount(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT}) as (root, commit):
        await sandbox.checkout(root, commit)
    applied = await sandbox.apply_patch(DIFF.replace(b"-1,3 +1,3", b"-1,9 +1,7"))
    same("rung", applied.rung, "recount")
    same("file", await sandbox.read("f.txt"), DONE)


@demand(
    "patches", "blanks and line ends that differ in context are forgiven, and the rung is named"
)
async def whitespace(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT.replace("\n", "\r\n")}) as (root, commit):
        await sandbox.checkout(root, commit)
    same("rung", (await sandbox.apply_patch(DIFF)).rung, "whitespace")
    expect(b"zwei" in await sandbox.read("f.txt"), "the file was not changed")


@demand("patches", "CRLF and a missing last newline are kept byte for byte")
async def bytes_are_kept(sandbox: SandboxLike) -> None:
    body = DIFF.partition(b"@@ -1")
    lines = body[2].partition(b"\n")
    crlf = body[0] + body[1] + lines[0] + b"\n" + lines[2].replace(b"\n", b"\r\n")
    cut = DIFF.replace(b" three\n", b" three\n\\ No newline at end of file\n")
    for diff, before, after in (
        (crlf, TEXT.replace("\n", "\r\n"), DONE.replace(b"\n", b"\r\n")),
        (cut, TEXT[:-1], DONE[:-1]),
    ):
        async with repository({"f.txt": before}) as (root, commit):
            await sandbox.checkout(root, commit)
        same("rung", (await sandbox.apply_patch(diff)).rung, "exact")
        same("file", await sandbox.read("f.txt"), after)


@demand("patches", "an empty diff changes nothing; diffs stack; one that is in already is named")
async def stacked(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT}) as (root, commit):
        await sandbox.checkout(root, commit)
    same("paths of an empty diff", (await sandbox.apply_patch(b" \n")).paths, ())
    await sandbox.apply_patch(DIFF)
    same("reason", await reason(sandbox, DIFF), "already_applied")
    more = DIFF.replace(b" one", b"-one\n+uno").replace(b"-two\n+zwei", b" zwei")
    await sandbox.apply_patch(more)
    same("file", await sandbox.read("f.txt"), b"uno\nzwei\nthree\n")


@demand("patches", "a diff that leads out of the work tree is refused, and nothing is changed")
async def refused(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT, "d/g": "g\n"}) as (root, _):
        await anyio.to_thread.run_sync(_add_link_out, root)
        await git(root, "add", "-A")
        await git(root, "commit", "-q", "-m", "link")
        await sandbox.checkout(root, "HEAD")
    for name, diff in REFUSED.items():
        try:
            same(f"{name}: reason", await reason(sandbox, diff), "refused")
        except Unmet as problem:
            raise Unmet(f"{name}: {problem}") from problem
        same(f"{name}: changes", await sandbox.diff(), b"")
    same("hooks", await printed(sandbox, "ls .git/hooks 2>/dev/null; ls -d ../x || true"), "")


def _add_link_out(root: Path) -> None:
    os.symlink("..", root / "out")


@demand("patches", "a diff that does not fit says why, and is not applied in part")
async def all_or_nothing(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT, "d/g": "g\n"}) as (root, commit):
        await sandbox.checkout(root, commit)
    for name, (diff, wanted) in UNFIT.items():
        same(f"{name}: reason", await reason(sandbox, diff), wanted)
        same(f"{name}: changes", await sandbox.diff(), b"")
    await printed(sandbox, "test -z \"$(find . -name '*.rej' -o -name '*.orig')\"")


@demand("patches", "git configuration inside the sandbox has no say in how a diff is applied")
async def hostile_configuration(sandbox: SandboxLike) -> None:
    async with repository({"f.txt": TEXT}) as (root, commit):
        await sandbox.checkout(root, commit)
    spy = 'touch "$HOME/ran"'
    for words in (
        f"core.fsmonitor '{spy}'", "apply.whitespace error-all", "diff.noprefix true",
        "diff.context 0",
        "core.hooksPath /tmp", f"diff.external '{spy}'", "--global apply.ignoreWhitespace change",
    ):  # fmt: skip
        await printed(sandbox, f"git config {words}")
    await sandbox.apply_patch(DIFF.replace(b"+zwei", b"+zwei   "))
    diff = await sandbox.diff()
    expect(b"diff --git a/f.txt b/f.txt" in diff, "diff() has no prefixes")
    expect(b"\n three\n" in diff, "diff() has no context")
    done = await sandbox.run('test -e "$HOME/ran"', timeout=STEP)
    expect(not done.ok, "a configured command was run")
