"""Which diffs apply, on which rung, and which are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.sandbox import PatchError, Sandbox, inspect_diff

Make = Callable[..., tuple[Path, str]]

TEXT = "one\ntwo\nthree\n"
GOOD = b"""diff --git a/f.txt b/f.txt
--- a/f.txt
+++ b/f.txt
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
"""
NEW_FILE = b"""diff --git a/%(p)s b/%(p)s
new file mode %(m)s
--- /dev/null
+++ b/%(p)s
@@ -0,0 +1 @@
+%(c)s
"""


def new(path: bytes, content: bytes = b"x", mode: bytes = b"100644") -> bytes:
    """A diff that adds a file."""
    return NEW_FILE % {b"p": path, b"c": content, b"m": mode}


async def content(sandbox: Sandbox) -> bytes:
    """The patched file."""
    return await sandbox.read("f.txt")


APPLYING = {
    "exact": (GOOD, TEXT, "exact", b"one\nzwei\nthree\n"),
    "prose around it": (b"Here you are:\n" + GOOD, TEXT, "exact", b"one\nzwei\nthree\n"),
    "no git header": (GOOD.split(b"\n", 1)[1], TEXT, "exact", b"one\nzwei\nthree\n"),
    "cut-off last newline": (GOOD[:-1], TEXT, "exact", b"one\nzwei\nthree\n"),
    "wrong counts": (
        GOOD.replace(b"-1,3 +1,3", b"-1,9 +1,7"), TEXT, "recount", b"one\nzwei\nthree\n",
    ),
    "blanks in context": (
        GOOD.replace(b" one", b"   one"), " one\ntwo\nthree\n", "whitespace",
        b" one\nzwei\nthree\n",
    ),
    "CRLF file, LF diff": (
        GOOD, TEXT.replace("\n", "\r\n"), "whitespace", b"one\r\nzwei\nthree\r\n",
    ),
    "CRLF file, CRLF diff": (
        GOOD.replace(b"two\n", b"two\r\n").replace(b"zwei\n", b"zwei\r\n")
        .replace(b" one\n", b" one\r\n").replace(b" three\n", b" three\r\n"),
        TEXT.replace("\n", "\r\n"), "exact", b"one\r\nzwei\r\nthree\r\n",
    ),
    "no newline at end": (
        GOOD.replace(b" three\n", b" three\n\\ No newline at end of file\n"), TEXT[:-1],
        "exact", b"one\nzwei\nthree",
    ),
    "a removed line that looks like a header": (
        b"--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,1 @@\n one\n--- /../x\n", "one\n-- /../x\n",
        "exact", b"one\n",
    ),
}  # fmt: skip

REFUSED = {
    "git folder": (new(b".git/hooks/pre-commit"), "refused"),
    "git folder, other case": (new(b"d/.GIT/config"), "refused"),
    "parent": (new(b"../x"), "refused"),
    "parent inside": (new(b"d/../../x"), "refused"),
    "absolute": (b"--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n", "refused"),
    "quoted parent": (
        b'--- /dev/null\n+++ "b/..\\057x"\n@@ -0,0 +1 @@\n+x\n', "refused",
    ),
    "through a symlink": (new(b"out/x"), "refused"),
    "link made and then followed": (new(b"l", b"d", b"120000") + new(b"l/x"), "refused"),
    "link to the outside": (new(b"l", b"/etc", b"120000"), "refused"),
    "submodule": (new(b"m", b"Subproject commit " + b"0" * 40, b"160000"), "refused"),
    "rename into git folder": (
        b"diff --git a/f.txt b/.git/x\nsimilarity index 100%\nrename from f.txt\n"
        b"rename to .git/x\n", "refused",
    ),
    "too large": (new(b"big", b"x" * (9 << 20)), "too_large"),
    "not a diff": (b"I changed add() as asked.\n", "malformed"),
    "garbage in a hunk": (GOOD.replace(b" three\n", b"three\n"), "malformed"),
    "other context": (GOOD.replace(b" three", b" four"), "mismatch"),
    "missing file": (GOOD.replace(b"f.txt", b"g.txt"), "mismatch"),
    "added twice": (new(b"f.txt"), "mismatch"),
    "binary stub": (
        b"diff --git a/f.txt b/f.txt\nindex 1234567..7654321 100644\n"
        b"Binary files a/f.txt and b/f.txt differ\n", "mismatch",
    ),
}  # fmt: skip


@pytest.mark.docker
async def test_the_ladder(sandbox: Sandbox, repository: Make) -> None:
    root, _ = repository({"f.txt": TEXT})
    from .conftest import git

    for name, (diff, before, rung, after) in APPLYING.items():
        (root / "f.txt").write_bytes(before.encode())
        git(root, "add", "-A")
        git(root, "commit", "-q", "--allow-empty", "-m", name)
        await sandbox.checkout(root, git(root, "rev-parse", "HEAD"))
        applied = await sandbox.apply_patch(diff)
        assert (name, applied.rung, applied.paths) == (name, rung, ("f.txt",))
        assert (name, await content(sandbox)) == (name, after)


@pytest.mark.docker
async def test_refused_diffs_change_nothing(sandbox: Sandbox, repository: Make) -> None:
    root, _ = repository({"f.txt": TEXT, "d/g": "g\n"})
    from .conftest import git

    os.symlink("/tmp", root / "out")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "link")
    await sandbox.checkout(root, "HEAD")
    for name, (diff, reason) in REFUSED.items():
        with pytest.raises(PatchError) as caught:
            await sandbox.apply_patch(GOOD.replace(b"f.txt", b"d/g") if not diff else diff)
        assert (name, caught.value.reason) == (name, reason), caught.value
        assert "\n" not in str(caught.value)
        assert (name, await sandbox.diff()) == (name, b"")
    done = await sandbox.run("ls /tmp/x .git/hooks", timeout=10)
    assert done.stdout.text() == ""


@pytest.mark.docker
async def test_already_applied_empty_and_stacked(sandbox: Sandbox, repository: Make) -> None:
    root, commit = repository({"f.txt": TEXT})
    await sandbox.checkout(root, commit)
    assert (await sandbox.apply_patch(b" \n")).paths == ()
    await sandbox.apply_patch(GOOD)
    with pytest.raises(PatchError, match="already") as caught:
        await sandbox.apply_patch(GOOD)
    assert caught.value.reason == "already_applied"
    more = GOOD.replace(b" one", b"-one\n+uno").replace(b"-two\n+zwei", b" zwei")
    assert (await sandbox.apply_patch(more)).rung == "exact"
    assert await content(sandbox) == b"uno\nzwei\nthree\n"


@pytest.mark.docker
async def test_hostile_git_configuration_has_no_say(sandbox: Sandbox, repository: Make) -> None:
    root, commit = repository({"f.txt": TEXT})
    await sandbox.checkout(root, commit)
    hostile = """git config core.fsmonitor 'touch /tmp/ran'; git config apply.whitespace error-all
        git config core.hooksPath /tmp/hooks; git config --global core.fsmonitor 'touch /tmp/ran'"""
    await sandbox.run(hostile, timeout=10)
    await sandbox.apply_patch(GOOD.replace(b"+zwei", b"+zwei   "))
    assert (await sandbox.run("test -e /tmp/ran", timeout=10)).exit_code == 1


def test_paths_of_a_diff() -> None:
    rename = (
        b'diff --git "a/sp\\303\\244te" b/new name\nsimilarity index 100%\n'
        b'rename from "sp\\303\\244te"\nrename to new name\n'
    )
    assert inspect_diff(GOOD + rename) == {"f.txt", "späte", "new name"}
    mode = b"diff --git a/run me b/run me\nold mode 100644\nnew mode 100755\n"
    assert inspect_diff(mode) == {"run me"}
    dated = b"--- a/f.txt\t2024-01-01 00:00:00\n+++ b/f.txt\t2024-01-01\n@@ -1 +1 @@\n-a\n+b\n"
    assert inspect_diff(dated) == {"f.txt"}
    huge = b"--- a/f.txt\n+++ b/f.txt\n@@ -1," + b"9" * 5000 + b" +1 @@\n-a\n+b\n"
    assert inspect_diff(huge) == {"f.txt"}
    with pytest.raises(PatchError, match="NUL"):
        inspect_diff(b'--- "a/f\\000.txt"\n+++ "b/f\\000.txt"\n@@ -1 +1 @@\n-a\n+b\n')


async def test_without_prefixes(sandbox: Sandbox, repository: Make) -> None:
    root, commit = repository({"f.txt": TEXT, "d/g.txt": TEXT})
    await sandbox.checkout(root, commit)
    plain = GOOD.replace(b"a/f.txt", b"d/g.txt").replace(b"b/f.txt", b"d/g.txt")
    applied = await sandbox.apply_patch(plain)
    assert (applied.rung, applied.paths) == ("p0", ("d/g.txt",))
    (file,) = applied.files
    assert (file.path, file.change, file.added, file.removed) == ("d/g.txt", "modified", 1, 1)
    hook = plain.replace(b"d/g.txt", b".git/hooks/x")
    with pytest.raises(PatchError, match="inside .git"):
        await sandbox.apply_patch(hook)


LINES = [f"line {number}\n" for number in range(40)]


async def test_a_merge_finds_its_place(sandbox: Sandbox, repository: Make) -> None:
    """The context moved and changed nearby: git's fuzz-free apply fails, a merge does not."""
    base = "".join(LINES)
    root, commit = repository({"f.txt": base})
    await sandbox.checkout(root, commit)
    await sandbox.write("f.txt", base.replace("line 20\n", "zwanzig\n").encode())
    diff = await sandbox.diff()
    await sandbox.write("f.txt", base.replace("line 18\n", "achtzehn\n").encode())
    applied = await sandbox.apply_patch(diff)
    assert applied.rung == "three_way" and applied.files[0].change == "modified"
    both = base.replace("line 18\n", "achtzehn\n").replace("line 20\n", "zwanzig\n")
    assert await sandbox.read("f.txt") == both.encode()
    left = await sandbox.run("ls -A /tmp; git status --porcelain", timeout=20)
    assert left.stdout.text() == " M f.txt\n"  # nothing lies about, the index is as it was
    conflict = base.replace("line 20\n", "vingt\n").encode()
    await sandbox.write("f.txt", conflict)
    with pytest.raises(PatchError):
        await sandbox.apply_patch(diff)
    assert await sandbox.read("f.txt") == conflict


async def test_the_report_of_each_file(sandbox: Sandbox, repository: Make) -> None:
    root, commit = repository({"f.txt": TEXT, "old": "a\nb\n", "gone": "1\n2\n", "bin": b"\0\1"})
    await sandbox.checkout(root, commit)
    await sandbox.run("mv old new; rm gone; printf '\\0\\2' > bin; echo n > fresh", timeout=20)
    diff = await sandbox.diff()
    await sandbox.checkout(root, commit)
    applied = await sandbox.apply_patch(diff)
    told = [(f.path, f.change, f.added, f.removed) for f in applied.files]
    assert told == [
        ("bin", "modified", None, None),
        ("fresh", "added", 1, 0),
        ("gone", "deleted", 0, 2),
        ("new", "added", 0, 0),
        ("old", "deleted", None, None),
    ]
