"""Changes as git understands them, read on the host from honest and hostile diffs."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from calc_repository import BASE, BUG, FIX
from calc_task import GIT, CalcRepository
from cheats import CHEATS
from honest_patches import HONEST

from patchgym.datasets.task import Task
from patchgym.rewards import Change, read_change
from patchgym.rewards.kept_change import kept, opened
from patchgym.sandbox import PatchError, PatchgymError, Pool, SandboxSpec

LIBRARY = "calc/arithmetic.py"
FIXED = {**BASE, LIBRARY: BASE[LIBRARY].replace(BUG.encode(), FIX.encode())}


@pytest.fixture
def calc(tmp_path: Path) -> CalcRepository:
    return CalcRepository(tmp_path / "calc")


@pytest.fixture
def read(calc: CalcRepository) -> Callable[[bytes], Change]:
    """Reads a diff, and sees that the change could be kept and had back, unless it is too much."""

    def read(diff: bytes) -> Change:
        change = read_change(calc.task, diff, calc.folder)
        small = kept(change)
        if small is None:
            assert change.cut or any(file.binary and file.hunks for file in change.files)
        else:
            assert opened(small) == change
        return change

    return read


def git(folder: Path, *words: str) -> bytes:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, env=GIT, check=True, capture_output=True).stdout


def added(path: str, text: bytes) -> bytes:
    """A diff that adds a file of whole lines."""
    name = path.encode()
    head = b"diff --git a/%b b/%b\nnew file mode 100644\n--- /dev/null\n+++ b/%b\n" % ((name,) * 3)
    lines = text.splitlines(keepends=True)
    return head + b"@@ -0,0 +1,%d @@\n" % len(lines) + b"".join(b"+" + line for line in lines)


def test_a_change_has_contents_and_hunks_without_context(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    change = read(calc.task.gold_patch.encode())
    (file,) = change.files
    assert (file.path, file.old_path, file.binary) == (LIBRARY, None, False)
    assert (file.before, file.after) == (BASE[LIBRARY], FIXED[LIBRARY])
    (hunk,) = file.hunks
    old, new = (text.decode().splitlines() for text in (BASE[LIBRARY], FIXED[LIBRARY]))
    assert [old[line.number - 1] for line in hunk.removed] == [each.text for each in hunk.removed]
    assert [new[line.number - 1] for line in hunk.added] == [each.text for each in hunk.added]
    assert (file.removed, file.added, change.size) == (1, 1, 2)


def test_an_empty_diff_makes_the_base_commits_own_tree(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    tree = git(calc.folder, "rev-parse", f"{calc.commit}^{{tree}}").decode().strip()
    assert read(b"") == read(b" \n\n") == Change(tree=tree)


def test_diffs_that_differ_as_text_make_the_same_tree(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    gold = calc.task.gold_patch.encode()
    header = next(line for line in gold.split(b"\n") if line.startswith(b"@@"))
    start, rest = header.split(b",", 1)
    calc._write(FIXED, {})
    told = {
        "little context": git(calc.folder, "diff", "-U1"),
        "no prefixes": git(calc.folder, "diff", "--no-prefix"),
        "no end": gold.rstrip(b"\n"),
        "wrong counts": gold.replace(header, start + b",9" + rest.lstrip(b"0123456789")),
        "prose around": b"Here you are:\n\n" + gold,
    }
    assert len({*told.values(), gold}) == len(told) + 1
    assert {name: read(diff).tree for name, diff in told.items()} == dict.fromkeys(
        told, read(gold).tree
    )


def test_every_kind_of_change_is_told(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    moved = {path: data for path, data in FIXED.items() if path != LIBRARY}
    moved["calc/sums of it.py"] = BASE[LIBRARY]
    diff = calc.diff(
        {
            **moved,
            "picture.bin": bytes(range(256)) * 4,
            "link.py": b"calc/sums of it.py",
            "windows.txt": b"one\r\ntwo\r\n",
            "end.txt": b"no newline",
            "latin\udce9.txt": b"\xe9\n",
        },
        {"link.py": "120000"},
    )
    change = read(diff)
    assert change.problem == ""
    files = {file.path: file for file in change.files}
    assert [*files] == sorted(files)
    assert files["calc/sums of it.py"].old_path == LIBRARY
    assert files["calc/sums of it.py"].hunks == ()
    assert files["picture.bin"].binary and files["picture.bin"].hunks == ()
    assert files["picture.bin"].after == bytes(range(256)) * 4
    assert files["link.py"].after == b"calc/sums of it.py"
    assert [line.text for line in files["windows.txt"].hunks[0].added] == ["one", "two"]
    assert files["windows.txt"].after == b"one\r\ntwo\r\n"
    assert (files["end.txt"].added, files["end.txt"].after) == (1, b"no newline")
    assert files["latin\udce9.txt"].hunks[0].added[0].text == "\udce9"


def test_modes_removals_and_types_are_told(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    rest = {path: data for path, data in BASE.items() if path != "calc/__init__.py"}
    mode = read(calc.diff(BASE, {LIBRARY: "100755"}))
    assert [(file.path, file.hunks, file.before == file.after) for file in mode.files] == [
        (LIBRARY, (), True)
    ]
    gone = read(calc.diff(rest))
    assert [(file.path, file.after) for file in gone.files] == [("calc/__init__.py", None)]
    link = read(calc.diff({**BASE, LIBRARY: b"__init__.py"}, {LIBRARY: "120000"}))
    (file,) = link.files
    assert (file.before, file.after) == (BASE[LIBRARY], b"__init__.py")
    assert (file.removed, file.added) == (BASE[LIBRARY].count(b"\n"), 1)


def test_a_diff_against_another_state_is_merged_like_in_a_sandbox(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    gold = calc.task.gold_patch.encode()
    lines = BASE[LIBRARY].decode().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if BUG in line)
    calc._write(
        {**BASE, LIBRARY: "".join([*lines[: at - 1], "# one\n" * 9, *lines[at - 1 :]]).encode()}, {}
    )
    git(calc.folder, "commit", "-q", "-a", "-m", "More")
    commit = git(calc.folder, "rev-parse", "HEAD").decode().strip()
    change = read_change(replace(calc.task, base_commit=commit), gold, calc.folder)
    assert (change.problem, change.size) == ("", 2)


REFUSED = {
    b"nonsense": "no file is named",
    b"\xff\x00\x01" * 99: "no file is named",
    b"diff --git a/x b/x\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n"
    b"+++ b/x\n@@ -0,0 +1 @@\n+Subproject commit 1234567\n": "submodule",
    b"diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n"
    b"@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n": "leads outside",
    b"--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n": "inside .git",
    b"--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n": "leaves the repository",
    b"--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+b\n": "gone.py: does not exist",
    b'--- "a/x\\000y"\n+++ "b/x\\000y"\n@@ -1 +1 @@\n-a\n+b\n': "NUL",
    b"--- a/x\n+++ b/x\n@@ -1," + b"9" * 5000 + b" +1 @@\n-a\n+b\n": "x: does not exist",
    b"--- a/" + b"x/" * 100_000 + b"y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n": "",
    b"diff --git " + b"a" * 1_000_000: "no file is named",
    b"+\n" * (4 << 20) + b"+": "over 8 MiB",
}


@pytest.mark.parametrize("diff", REFUSED, ids=lambda diff: repr(diff[:40]))
def test_a_diff_that_does_not_apply_says_why_and_has_no_files(
    diff: bytes, read: Callable[[bytes], Change]
) -> None:
    change = read(diff)
    assert change.problem and REFUSED[diff] in change.problem
    whole = diff if diff.endswith(b"\n") else diff + b"\n"
    assert (change.files, change.tree) == ((), hashlib.sha256(whole).hexdigest())


def test_a_diff_that_is_there_already_says_so(
    calc: CalcRepository, read: Callable[[bytes], Change]
) -> None:
    backwards = calc.diff(FIXED)
    calc._write(FIXED, {})
    git(calc.folder, "commit", "-q", "-a", "-m", "Fixed")
    commit = git(calc.folder, "rev-parse", "HEAD").decode().strip()
    change = read_change(replace(calc.task, base_commit=commit), backwards, calc.folder)
    assert change.problem == "the diff is in the tree already"


def test_nothing_of_the_repository_is_run_or_believed(
    calc: CalcRepository, read: Callable[[bytes], Change], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for name in ("diff.external", "diff.x.command", "diff.x.textconv", "filter.x.clean",
                 "merge.x.driver", "core.fsmonitor"):  # fmt: skip
        git(calc.folder, "config", name, str(script))
    git(calc.folder, "config", "diff.noprefix", "true")
    attributes = b"* -text -diff merge=x filter=x diff=x\n*.py binary\n"
    (calc.folder / ".git" / "info" / "attributes").write_bytes(attributes)
    before = sorted(path for path in calc.folder.rglob("*"))
    change = read(calc.task.gold_patch.encode() + added("calc/.gitattributes", attributes))
    assert change.problem == ""
    assert [(file.path, file.binary) for file in change.files] == [
        ("calc/.gitattributes", False), (LIBRARY, False)
    ]  # fmt: skip
    assert change.size == 4
    assert not mark.exists()
    assert sorted(path for path in calc.folder.rglob("*")) == before


def test_a_broken_repository_is_no_fault_of_the_diff(calc: CalcRepository) -> None:
    gold = calc.task.gold_patch.encode()
    with pytest.raises(PatchgymError):
        read_change(replace(calc.task, base_commit="1" * 40), gold, calc.folder)
    with pytest.raises(PatchgymError):
        read_change(calc.task, gold, calc.folder / "nothing")
    blob = git(calc.folder, "rev-parse", f"HEAD:{LIBRARY}").decode().strip()
    place = calc.folder / ".git" / "objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(PatchgymError):
        read_change(calc.task, gold, calc.folder)
    place.unlink()
    with pytest.raises(PatchgymError, match="missing"):
        read_change(calc.task, gold, calc.folder)


def bomb(kind: bytes, size: int, data: bytes) -> bytes:
    """A binary diff that says it has so many bytes."""
    packed = zlib.compress(data, 9)
    rows = [packed[at : at + 52] for at in range(0, len(packed), 52)]
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    lines = b"".join(
        letters[len(row) - 1 : len(row)] + base64.b85encode(row, pad=True) + b"\n" for row in rows
    )
    head = b"diff --git a/x b/x\nindex 1111111..2222222 100644\nGIT binary patch\n"
    return head + b"%b %d\n" % (kind, size) + lines + b"\nliteral 0\nHcmV?d00001\n\n"


def test_what_would_unpack_to_gigabytes_is_refused_before_git_sees_it(
    read: Callable[[bytes], Change],
) -> None:
    delta = b"\x80\x80\x04" + b"\x80\x80\x80\x80\x40" + b"\x80" * 4000
    for diff in (bomb(b"literal", 1 << 32, b"x" * 99), bomb(b"delta", len(delta), delta)):
        assert read(diff).problem == "its binary files are over 64 MiB"


def test_what_is_huge_is_bounded_and_still_counts(read: Callable[[bytes], Change]) -> None:
    long = read(added("long.py", b"x\n" * 250_000))
    assert (long.problem, long.size, len(long.files)) == ("", 200_000, 1)
    assert long.cut == "lines past the first 200,000"
    many = read(b"".join(added(f"f{number}.py", b"x\n") for number in range(600)))
    assert (many.problem, many.size, len(many.files)) == ("", 500, 500)
    assert many.cut == "100 of 600 files"


def test_a_bundled_repository_is_read_as_well(tmp_path: Path) -> None:
    from patchgym.datasets.repository import materialize
    from patchgym.datasets.task import bundled_tasks

    task: Task = bundled_tasks("train")[0]
    change = read_change(task, task.gold_patch.encode(), materialize(task, tmp_path))
    assert change.problem == "" and change.size > 0


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_the_tree_is_the_one_that_a_sandbox_has(
    calc: CalcRepository, read: Callable[[bytes], Change], docker_image: str
) -> None:
    diffs = [calc.diff(cheat.files_after, cheat.modes) for cheat in CHEATS[::4]]
    diffs += [calc.diff(patch.files_after) for patch in HONEST[::4]]
    diffs += [diff for diff in REFUSED if b"\\000" not in diff and b"9" * 5000 not in diff]
    told: dict[bytes, str] = {}
    async with Pool(SandboxSpec(image=docker_image), size=1) as pool:
        for diff in diffs:
            async with pool.lease(timeout=120) as sandbox:
                await sandbox.checkout(calc.folder, calc.commit)
                try:
                    await sandbox.apply_patch(diff)
                except PatchError:
                    told[diff] = ""
                    continue
                command = "rm -f .git/info/exclude; git add -A -f && git write-tree"
                done = await sandbox.run(command, timeout=60)
                assert done.ok, done.stderr.text()
                told[diff] = done.stdout.text().strip()
    for diff, tree in told.items():
        change = read(diff)
        assert ("" if change.problem else change.tree) == tree, diff[:200]
