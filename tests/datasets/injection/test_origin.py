"""Repositories of bugs: copied from any source, one commit each; others' code is only read."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from small_library import FILES

from patchgym.datasets.injection.origin import open_origin
from patchgym.datasets.repository import commit_files, write_files
from patchgym.datasets.task import TaskError

WRONG = FILES["shop/price.py"].replace("percent / 100", "percent / 10").encode()


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with the library, and a later commit on top."""
    folder = tmp_path / "shop"
    folder.mkdir()
    commit_files(FILES, folder).close()
    (folder / "later.txt").write_text("later\n")
    git(folder, "add", "later.txt")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "Later")
    return folder


def test_a_repository_a_folder_and_an_sdist_give_the_same_files(
    repository: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    write_files(FILES, plain)
    archive = tmp_path / "shop-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(plain, arcname="shop-1.0")
    before = git(repository, "for-each-ref"), sorted(os.listdir(repository / ".git"))
    origins = [
        open_origin(repository, tmp_path / "a.git", commit="HEAD~1"),
        open_origin(plain, tmp_path / "b.git"),
        open_origin(archive, tmp_path / "c.git"),
    ]
    assert len({origin.tree for origin in origins}) == 1
    assert [origin.name for origin in origins] == ["shop", "plain", "shop-1.0"]
    assert set(origins[0].paths()) == set(FILES)
    assert (git(repository, "for-each-ref"), sorted(os.listdir(repository / ".git"))) == before
    assert not (plain / ".git").exists()


def test_a_bug_is_a_commit_without_a_past_and_its_fix_leads_back(
    repository: Path, tmp_path: Path
) -> None:
    origin = open_origin(repository, tmp_path / "bugs.git", commit="HEAD~1")
    bug = origin.bug({"shop/price.py": WRONG}, "one")
    assert git(origin.repository, "rev-list", bug).split() == [bug]
    assert git(origin.repository, "show", f"{bug}:shop/price.py").encode() == WRONG
    fix = origin.fix(bug)
    assert fix.startswith("diff --git a/shop/price.py b/shop/price.py\n")
    assert "+    return max(price - price * percent / 100, 0)\n" in fix
    assert (
        open_origin(repository, tmp_path / "again.git", commit="HEAD~1").bug(
            {"shop/price.py": WRONG}, "one"
        )
        == bug
    )


def test_what_can_not_be_read_is_named(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such file or folder"):
        open_origin(tmp_path / "nowhere", tmp_path / "x.git")
    with pytest.raises(TaskError, match="no commit v9 in it: name another"):
        open_origin(repository, tmp_path / "x.git", commit="v9")
    (tmp_path / "shop.tar.gz").write_bytes(b"no archive")
    with pytest.raises(TaskError, match="no sdist"):
        open_origin(tmp_path / "shop.tar.gz", tmp_path / "x.git")
