"""Task repositories on disk: real, always the same, whole, whoever asks and how often."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from patchgym.datasets.repository import commit_files, materialize, trusted_files
from patchgym.datasets.task import Task, TaskError, bundled_tasks


@pytest.fixture
def task() -> Task:
    return bundled_tasks("train")[0]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_is_a_clean_git_repository_with_one_commit(task: Task, tmp_path: Path) -> None:
    folder = materialize(task, tmp_path / "not" / "there")
    assert folder == tmp_path / "not" / "there" / task.id.replace("/", "+")
    assert git(folder, "rev-list", "--all").split() == [task.base_commit]
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "fsck", "--strict", "--full") == ""
    assert git(folder, "ls-tree", "-r", "--name-only", "HEAD").split() == sorted(task.files or {})
    assert {path: (folder / path).read_text() for path in task.files or {}} == task.files


def test_the_gold_patch_applies_with_git(task: Task, tmp_path: Path) -> None:
    folder = materialize(task, tmp_path)
    (tmp_path / "gold.patch").write_text(task.gold_patch)
    git(folder, "apply", "--index", str(tmp_path / "gold.patch"))
    assert git(folder, "diff", "--cached", "--full-index") == task.gold_patch


def test_settings_of_the_user_change_nothing(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[init]\ntemplateDir = {tmp_path}/template\ndefaultBranch = trunk\n"
        "[core]\nautocrlf = true\n[i18n]\ncommitEncoding = latin1\n[commit]\ngpgSign = true\n"
        "[user]\nname = Someone\nemail = else@example.org\n"
    )
    for name, value in {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_AUTHOR_NAME": "Someone",
        "GIT_COMMITTER_DATE": "1 +0300",
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_DEFAULT_HASH": "sha256",
    }.items():
        monkeypatch.setenv(name, value)
    folder = materialize(task, tmp_path / "root")
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.delenv("GIT_DIR")
    assert git(folder, "rev-parse", "HEAD").strip() == task.base_commit


def test_folders_inside_are_kept(task: Task, tmp_path: Path) -> None:
    files = {**(task.files or {}), "a/b/c.txt": "c\n", "a/d.txt": "", "\u00e9.txt": "\r\n"}
    with pytest.raises(TaskError) as caught:
        materialize(replace(task, files=files), tmp_path)
    commit = str(caught.value).split("its files make commit ")[1][:40]
    folder = materialize(replace(task, files=files, base_commit=commit), tmp_path)
    inode = (folder / ".git").stat().st_ino
    assert git(folder, "status", "--porcelain") == ""
    materialize(replace(task, files=files, base_commit=commit), tmp_path)
    assert (folder / ".git").stat().st_ino == inode
    (folder / "a/b/c.txt").write_text("d\n")
    materialize(replace(task, files=files, base_commit=commit), tmp_path)
    assert (folder / "a/b/c.txt").read_text() == "c\n"


def test_a_good_one_is_used_again(task: Task, tmp_path: Path) -> None:
    first = materialize(task, tmp_path)
    before = (first / ".git").stat().st_ino
    assert materialize(task, tmp_path) == first
    assert (first / ".git").stat().st_ino == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", first.name]


def _cut_an_object(folder: Path) -> None:
    for path in (folder / ".git" / "objects").glob("??/*"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:5])


def _lose_an_object(folder: Path) -> None:
    blob = git(folder, "rev-parse", "HEAD:" + next(folder.glob("test_*.py")).name).strip()
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def _swap_objects(folder: Path) -> None:
    first, second = sorted((folder / ".git" / "objects").glob("??/*"))[:2]
    first.chmod(0o644)
    first.write_bytes(second.read_bytes())


def _change_a_file(folder: Path) -> None:
    next(folder.glob("test_*.py")).write_text("def test_1(): pass\n")


def _remove_a_file(folder: Path) -> None:
    next(folder.glob("test_*.py")).unlink()


def _lose_the_head(folder: Path) -> None:
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/other\n")


def _lose_git(folder: Path) -> None:
    (folder / ".git").rename(folder / "git")


def _become_a_file(folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    folder.write_text("")


@pytest.mark.parametrize(
    "damage",
    [
        _cut_an_object,
        _lose_an_object,
        _swap_objects,
        _change_a_file,
        _remove_a_file,
        _lose_the_head,
        _lose_git,
        _become_a_file,
    ],
)
def test_a_damaged_one_is_built_again(
    damage: Callable[[Path], None], task: Task, tmp_path: Path
) -> None:
    damage(materialize(task, tmp_path))
    folder = materialize(task, tmp_path)
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "fsck", "--strict", "--full") == ""
    assert git(folder, "rev-parse", "HEAD").strip() == task.base_commit
    assert not list(tmp_path.glob(".new-*"))


def test_threads_may_ask_at_once(tmp_path: Path) -> None:
    tasks = bundled_tasks("heldout")[:4] * 6
    with ThreadPoolExecutor(12) as threads:
        folders = list(threads.map(lambda task: materialize(task, tmp_path), tasks))
    assert len(set(folders)) == 4
    for task, folder in zip(tasks[:4], folders[:4], strict=True):
        assert git(folder, "rev-parse", "HEAD").strip() == task.base_commit
    assert not list(tmp_path.glob(".new-*"))


def test_processes_may_ask_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from patchgym.datasets.repository import materialize\n"
        "from patchgym.datasets.task import bundled_tasks\n"
        "for task in bundled_tasks('heldout')[:3]: materialize(task, Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(list(tmp_path.glob("repair+*"))) == 3


def test_files_that_make_another_commit_are_refused(task: Task, tmp_path: Path) -> None:
    wrong = replace(task, base_commit="0" * 40)
    with pytest.raises(TaskError, match=f"its files make commit {task.base_commit}, not base_com"):
        materialize(wrong, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_a_repository_is_used_where_it_is(task: Task, tmp_path: Path) -> None:
    folder = materialize(task, tmp_path)
    own = replace(task, files=None, repository=str(folder))
    assert materialize(own, tmp_path / "unused") == folder
    assert not (tmp_path / "unused").exists()


def test_a_repository_without_the_commit_is_named(task: Task, tmp_path: Path) -> None:
    own = replace(task, files=None, repository=str(tmp_path / "none"))
    with pytest.raises(TaskError, match="none is no git repository: clone it there"):
        materialize(own, tmp_path)
    folder = materialize(task, tmp_path)
    for commit in ("0" * 40, git(folder, "rev-parse", "HEAD^{tree}").strip()):
        own = replace(task, files=None, repository=str(folder), base_commit=commit)
        with pytest.raises(TaskError, match=rf"base_commit {commit} is not in .*: fetch it \(git"):
            materialize(own, tmp_path)


def test_trusted_files_come_from_the_commit(task: Task, tmp_path: Path) -> None:
    folder = materialize(task, tmp_path)
    (folder / task.test_files[0]).write_text("changed")
    files = trusted_files(task, folder)
    assert files == {path: (task.files or {})[path].encode() for path in task.test_files}
    missing = replace(
        task,
        files=None,
        repository=str(folder),
        test_files=("a/test_b.py",),
        fail_to_pass=("a/test_b.py::test_c",),
        pass_to_pass=(),
    )
    with pytest.raises(TaskError, match=r"test file a/test_b\.py is not in base_commit: commit"):
        trusted_files(missing, folder)


def test_a_repository_s_own_programs_do_not_run_here(tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    with commit_files({"a.py": "a = 1\n", "test_a.py": "def test_a(): pass\n"}, folder) as repo:
        commit = repo.head.commit.hexsha
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    config = folder / ".git" / "config"
    config.write_text(
        config.read_text()
        + f"[core]\n\tfsmonitor = {program}\n\thooksPath = {tmp_path}\n\tpager = {program}\n"
        + f'[diff]\n\texternal = {program}\n[filter "x"]\n\tclean = {program}\n'
    )
    task = Task(
        id="own/hostile",
        statement="a is wrong",
        base_commit=commit,
        gold_patch=(
            "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
        ),
        test_patch=(
            "diff --git a/test_a.py b/test_a.py\n--- a/test_a.py\n+++ b/test_a.py\n"
            "@@ -1 +1,2 @@\n def test_a(): pass\n+def test_b(): pass\n"
        ),
        fail_to_pass=("test_a.py::test_b",),
        test_files=("test_a.py",),
        repository=str(folder),
    )
    root = materialize(task, tmp_path / "root")
    found = trusted_files(task, root)
    assert found["test_a.py"] == b"def test_a(): pass\ndef test_b(): pass\n"
    assert not mark.exists()
