"""The walk over real repositories, odd ones too, and the candidates it finds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from git_history import History

from patchgym.datasets.mining.candidates import Candidate, candidate_of
from patchgym.datasets.mining.errors import MiningError
from patchgym.datasets.mining.history import merged_messages, order, walk
from patchgym.datasets.mining.split import Dropped, Layout
from patchgym.datasets.mining.view import View, open_view

CODE = "def f():\n    return 1\n"
FIXED = "def f():\n    return 2\n"
TESTS = "from f import f\n\n\ndef test_f():\n    assert f() == 2\n"


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One commit with a bug."""
    made = History(tmp_path / "shop")
    made.commit("Start", {"f.py": CODE, "README.md": "f\n"})
    return made


def look(history: History | Path, **name: str) -> View:
    folder = history if isinstance(history, Path) else history.folder
    return open_view(folder, folder.parent / "view.git", **name)


def newest(history: History | Path, layout: Layout | None = None) -> Candidate | Dropped:
    view = look(history)
    (commit,) = walk(view, since=None, limit=1)
    return candidate_of(view, commit, layout or Layout(), {})


def candidate(history: History | Path) -> Candidate:
    found = newest(history)
    assert isinstance(found, Candidate), found
    return found


def applied(history: History, *diffs: str) -> str:
    """The tree that the diffs make of the newest commit's parent."""
    index = str(history.folder.parent / "index")
    environment = {**os.environ, "GIT_INDEX_FILE": index}

    def git(*words: str, stdin: bytes = b"") -> str:
        command = ["git", "-C", str(history.folder), *words]
        done = subprocess.run(
            command, env=environment, input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    git("read-tree", "HEAD^1")
    for diff in diffs:
        git("apply", "--cached", "-", stdin=diff.encode())
    return git("write-tree")


def whole(history: History, found: Candidate) -> bool:
    """Whether the two patches together are the whole commit."""
    tree = history.git("rev-parse", "HEAD^{tree}").strip()
    return applied(history, found.golds[0], found.test_patch) == tree


def test_a_fix_is_split(history: History) -> None:
    commit = history.commit("Fix f", {"f.py": FIXED, "test_f.py": TESTS})
    found = candidate(history)
    assert found.commit.id == commit
    assert found.commit.date == "2023-11-14T22:15:20Z"
    assert found.task_id == f"{history.folder.parent.name}__shop-{commit[:12]}"
    assert found.repo is None
    assert "test_f.py" not in found.golds[0]
    assert "+    return 2\n" in found.golds[0]
    assert whole(history, found)


def test_names(history: History) -> None:
    history.git("remote", "add", "origin", "https://someone:secret@example.org/own/shop.git")
    assert look(history).name == "own/shop"
    assert look(history).named
    assert look(history, name="a/b").name == "a/b"


def test_renames_stay_renames_and_cross_sides_in_two_halves(history: History) -> None:
    text = "".join(f"x{number} = {number}\n" for number in range(30))
    cases = text.replace("x", "case")
    history.commit("More", {"a.py": text, "tests/test_a.py": text, "tests/cases.py": cases})
    history.commit(
        "Move",
        {
            "a.py": None, "b.py": text + "y = 1\n",
            "tests/test_a.py": None, "tests/test_b.py": text + "z = 1\n",
            "tests/cases.py": None, "cases.py": cases + "w = 1\n",
        },
    )  # fmt: skip
    found = candidate(history)
    assert "rename from a.py" in found.golds[0]
    assert "rename from tests/test_a.py" in found.test_patch
    assert "deleted file" in found.test_patch
    assert "new file" in found.golds[0]
    assert found.split.modules == ("tests/test_b.py",)
    assert whole(history, found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"def f():\r\n    return 1\r\n", b"def f():\r\n    return 2\r\n"),
        (b"# caf\xe9\ndef f():\n    return 1\n", b"# caf\xe9\ndef f():\n    return 2"),
        (b"\x00\x01", b"\x00\x02"),
        (CODE.encode(), b"# caf\xe9\n"),
    ],
    ids=["crlf", "latin-1", "binary", "becomes-latin-1"],
)
def test_bytes_come_through(history: History, before: bytes, after: bytes) -> None:
    history.commit("One", {"g.py": before, "tests/data": before})
    history.commit("Two", {"g.py": after, "tests/data": after, "test_f.py": TESTS})
    assert whole(history, candidate(history))


def test_a_file_too_big_to_be_looked_at_comes_through(history: History) -> None:
    big = b"# caf\xe9\n" * (1 << 18)
    history.commit("One", {"g.py": big})
    history.commit("Two", {"g.py": b"# caf\xe9 \n" + big, "test_f.py": TESTS})
    found = candidate(history)
    assert "GIT binary patch" in found.golds[0]
    assert whole(history, found)


def test_what_belongs_to_neither_side_is_left_out(history: History) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 1\n"
    history.commit(
        "Fix f",
        {
            "f.py": FIXED, "test_f.py": TESTS, "README.md": "better\n", "poetry.lock": "x\n",
            "vendor/a.py": "a\n", "x_pb2.py": "# made\n", "y.py": "# @generated\n",
            "model.bin": pointer.format(0),
        },
    )  # fmt: skip
    found = candidate(history)
    assert found.split.gold == ("f.py",)
    assert set(found.split.left_out.values()) == {
        "docs", "lock", "vendored", "generated", "lfs",
    }  # fmt: skip
    assert [diff.count("diff --git") for diff in found.golds] == [1, 4]


def test_submodules_and_symlinks(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "other")
    other.commit("Start", {"a": "a\n"})
    history.git(
        "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.folder), "o"
    )
    history.commit("Fix", {"f.py": FIXED, "test_f.py": TESTS}, links={"g.py": "f.py"})
    found = candidate(history)
    assert found.split.left_out["o"] == "submodule"
    assert found.split.left_out[".gitmodules"] == "upkeep"
    assert "120000" in found.golds[0]
    history.commit("More", {"f.py": CODE, "test_f.py": TESTS + "\n"}, links={"tests/f": "../f.py"})
    assert newest(history) == Dropped(reason="symlink-in-tests", detail="tests/f")


def test_odd_paths(history: History) -> None:
    history.commit("Sp ace", {"f.py": FIXED, 'tests/test_*"\u00e9 [a].py': TESTS})
    found = candidate(history)
    assert found.split.modules == ('tests/test_*"\u00e9 [a].py',)
    assert whole(history, found)
    odd = os.fsencode(history.folder) + b"/tests/test_\xff.py"
    Path(os.fsdecode(odd)).write_text("")
    history.commit("Odd", {"f.py": CODE})
    assert newest(history) == Dropped(reason="odd-path", detail="'tests/test_\\udcff.py'")


def test_merges_are_one_change_and_squashes_too(history: History) -> None:
    history.git("checkout", "-q", "-b", "topic")
    history.commit("Test f", {"test_f.py": TESTS})
    history.commit("Fix f", {"f.py": FIXED})
    history.git("checkout", "-q", "main")
    history.commit("Docs", {"README.md": "more\n"})
    history.git("merge", "-q", "--no-ff", "-m", "Merge pull request #3 from a/topic", "topic")
    view = look(history)
    commits = walk(view, since=None, limit=None)
    assert [commit.message.split()[0] for commit in commits] == ["Merge", "Docs", "Start"]
    assert merged_messages(view, commits[0]) == ("Test f", "Fix f")
    found = candidate(history)
    assert found.messages[1:] == ("Test f", "Fix f")
    assert whole(history, found)
    assert order(view)[history.head] == 2
    assert candidate_of(view, commits[-1], Layout(), {}) == Dropped(reason="root")


def test_since_and_limit(history: History) -> None:
    first = history.head
    history.git("tag", "v1")
    ids = [history.commit(f"{number}", {"README.md": f"{number}\n"}) for number in range(4)]
    view = look(history)

    def walked(since: str | None, limit: int | None = None) -> list[str]:
        return [commit.id for commit in walk(view, since=since, limit=limit)]

    assert walked(None) == [*reversed(ids), first]
    assert walked("v1") == list(reversed(ids))
    assert walked(ids[1][:10]) == [ids[3], ids[2]]
    assert walked("2023-11-14T22:17:00") == [ids[3], ids[2]]
    assert walked("2023-11-15") == []
    assert walked(None, 2) == [ids[3], ids[2]]
    with pytest.raises(MiningError, match="--since nothing: neither a date nor a commit"):
        walked("nothing")


def test_shallow_bare_dirty_and_linked_work_trees(history: History, tmp_path: Path) -> None:
    history.commit("Fix f", {"f.py": FIXED, "test_f.py": TESTS})
    history.commit("Docs", {"README.md": "x\n"})
    (history.folder / "f.py").write_text("dirty")
    for number, words in enumerate([("--depth=2",), ("--bare",), ()]):
        clone = tmp_path / f"clone{number}"
        history.git("clone", "-q", *words, history.folder.as_uri(), str(clone))
        view = look(clone)
        commits = walk(view, since=None, limit=None)
        assert len(commits) == (2 if "--depth=2" in words else 3)
        found = candidate_of(view, commits[1], Layout(), {})
        if "--depth=2" in words:
            assert found == Dropped(reason="shallow")
        else:
            assert isinstance(found, Candidate)
    history.git("worktree", "add", "-q", str(tmp_path / "linked"))
    assert look(tmp_path / "linked").head == history.head


def test_objects_that_are_not_there(history: History) -> None:
    history.commit("Fix f", {"f.py": FIXED, "test_f.py": TESTS})
    blob = history.git("rev-parse", "HEAD:f.py").strip()
    (history.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = newest(history)
    assert isinstance(found, Dropped)
    assert found.reason == "missing-objects"


def test_bad_repositories(tmp_path: Path, history: History) -> None:
    unborn = History(tmp_path / "unborn")
    (history.folder / "inside").mkdir()
    for folder, complaint in (
        (tmp_path / "none", "no such folder: name a git repository"),
        (tmp_path, "is no git repository: clone it there"),
        (history.folder / "inside", "is no git repository"),
        (unborn.folder, "no commit in its HEAD"),
    ):
        with pytest.raises(MiningError, match=complaint):
            look(folder)


def test_nothing_of_the_repository_runs(history: History, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat 2>/dev/null\n")
    script.chmod(0o755)
    history.commit("Attributes", {".gitattributes": "* diff=own filter=own merge=own\n"})
    history.commit("Fix f", {"f.py": FIXED, "test_f.py": TESTS})
    for key in (
        "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external",
        "diff.own.textconv", "diff.own.command", "filter.own.clean", "filter.own.smudge",
        "uploadpack.packObjectsHook", "gpg.program", "core.alternateRefsCommand",
    ):  # fmt: skip
        history.git("config", key, str(script))
    history.git("config", "log.showSignature", "true")
    hooks = history.folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        shutil.copy(script, hooks / name)
    marker.unlink(missing_ok=True)
    found = candidate(history)
    assert "+    return 2" in found.golds[0]
    assert not marker.exists()
