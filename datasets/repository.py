"""A task's files as a real git repository on disk, always with the same commit id."""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .task import Task, TaskError

if TYPE_CHECKING:
    from git import Repo
    from git.objects import IndexObject

_AUTHOR = ("patchgym", "patchgym@localhost")
_DATE = "946684800 +0000"
_MESSAGE = "Start\n"
_LOCK_SECONDS = 60.0


def materialize(task: Task, root: Path) -> Path:
    """The folder of a git repository that holds task.base_commit. Blocking: call it in a thread.

    A task with inline files gets `root/<id>` (with `+` for `/`): one commit, checked object by
    object each time, rebuilt when damaged; threads and processes may ask at once. A task with a
    repository gets that one, after a look that the commit is there. Raises TaskError.
    """
    if task.files is None:
        return _existing(task)
    target = root / task.id.replace("/", "+")
    if is_intact(target, task.base_commit):
        return target
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
        # Another caller may have built it while this one waited.
        if not is_intact(target, task.base_commit):
            _build(task, target)
    return target


def commit_files(files: Mapping[str, str], folder: Path) -> "Repo":
    """A new repository in the empty `folder`: one commit whose id depends on the files alone."""
    from git import Actor, Repo

    # No template, a fixed hash and the local encoding: the user's settings must not change the id.
    repo = Repo.init(
        folder,
        initial_branch="main",
        object_format="sha1",
        env={"GIT_DIR": str(folder / ".git"), "GIT_TEMPLATE_DIR": ""},
    )
    with repo.config_writer() as config:
        config.set_value("i18n", "commitEncoding", "UTF-8")
        config.set_value("core", "autocrlf", "false")
    write_files(files, folder)
    repo.index.add(sorted(files))
    author = Actor(*_AUTHOR)
    repo.index.commit(
        _MESSAGE,
        parent_commits=[],
        author=author,
        committer=author,
        author_date=_DATE,
        commit_date=_DATE,
        skip_hooks=True,
    )
    return repo


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write files below `folder`, byte for byte, with mode 644."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        file.chmod(0o644)


def is_intact(folder: Path, commit: str) -> bool:
    """Is `commit` checked out there, with every object of it readable and true to its name?"""
    from git import Repo

    if not (folder / ".git").is_dir():
        return False
    try:
        with Repo(folder) as repo:
            return repo.head.commit.hexsha == commit and _is_true(repo, commit, folder)
    # Damage shows as anything: a zlib error, a missing key, a short read, a bad header.
    except Exception:
        return False


def _is_true(repo: "Repo", commit: str, folder: Path) -> bool:
    root = repo.commit(commit)
    objects: list[IndexObject] = [root.tree]
    for item in root.tree.traverse():
        assert not isinstance(item, tuple)
        objects.append(item)
    names = [root.binsha, *(item.binsha for item in objects)]
    if any(_name(repo, binsha) != binsha for binsha in names):
        return False
    blobs = [item for item in objects if item.type == "blob"]
    return all(_on_disk(folder / item.path) == item.binsha for item in blobs)


def _name(repo: "Repo", binsha: bytes) -> bytes:
    stream = repo.odb.stream(binsha)
    return _git_name(stream.type, stream.read())


def _git_name(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(kind + b" %d\0" % len(data) + data, usedforsecurity=False).digest()


def _on_disk(path: Path) -> bytes:
    status = path.lstat()
    plain = stat.S_ISREG(status.st_mode) and not status.st_mode & stat.S_IXUSR
    return _git_name(b"blob", path.read_bytes()) if plain else b""


def _build(task: Task, target: Path) -> None:
    """Make the repository beside `target` and move it there; the caller holds the lock."""
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        new = temporary / "new"
        new.mkdir(mode=0o755)
        with commit_files(task.files or {}, new) as repo:
            made = repo.head.commit.hexsha
        if made != task.base_commit:
            raise TaskError(
                f"{task.id}: its files make commit {made}, not base_commit {task.base_commit}: "
                "put the first one in base_commit, or restore the files"
            )
        if os.path.lexists(target):
            target.rename(temporary / "damaged")
        new.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One builder per root at a time; the system frees the lock of a builder that dies."""
    path = root / ".lock"
    with path.open("a") as file:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() > deadline:
                raise TaskError(
                    f"{path} was held for {_LOCK_SECONDS:.0f} s by another patchgym: "
                    "end the process that `fuser` names"
                )
            time.sleep(0.005)
        yield


def _existing(task: Task) -> Path:
    from git import Repo
    from git.exc import InvalidGitRepositoryError, NoSuchPathError

    path = Path(task.repository or "")
    try:
        repo = Repo(path)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise TaskError(f"{task.id}: {path} is no git repository: clone it there") from error
    with repo:
        try:
            kind = repo.odb.info(bytes.fromhex(task.base_commit)).type
        except Exception as error:
            raise _missing(task, path) from error
        if kind != b"commit":
            raise _missing(task, path)
    return path


def _missing(task: Task, path: Path) -> TaskError:
    return TaskError(
        f"{task.id}: base_commit {task.base_commit} is not in {path}: fetch it "
        f"(git -C {path} fetch origin {task.base_commit}), or correct base_commit"
    )
