"""A task's files as a real git repository on disk, always with the same commit id."""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.sandbox import inspect_diff
from patchgym.sandbox.host_git import GitFailure, run_git

from .task import Task, TaskError

if TYPE_CHECKING:
    from git import Repo

_AUTHOR = ("patchgym", "patchgym@localhost")
_DATE = "946684800 +0000"
_MESSAGE = "Start\n"
_LOCK_SECONDS = 60.0
_ARGUMENTS = 100  # paths in one command, which may be long


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


def trusted_files(task: Task, repository: Path) -> Mapping[str, bytes | None]:
    """The task's test files at base_commit with test_patch on top; None: not there. Blocking.

    Raises TaskError when a test file is missing or test_patch does not apply.
    """
    paths = dict.fromkeys(task.test_files)
    if not task.test_patch:
        found = read_files(repository, task.base_commit, tuple(paths))
    else:
        found = _patched(task, repository, tuple(paths))
    for path in task.test_files:
        if found[path] is None and path not in patched_paths(task.test_patch):
            raise TaskError(
                f"{task.id}: test file {path} is not in base_commit: commit it there, "
                "or correct test_files"
            )
    return found


def read_files(repository: Path, commit: str, paths: Sequence[str]) -> dict[str, bytes | None]:
    """Files of a commit by path; None for one that is not there. A link reads as its target."""
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    if not paths:
        return found
    ids = {}
    for start in range(0, len(paths), _ARGUMENTS):
        some = paths[start : start + _ARGUMENTS]
        listing = _text(_git(repository, {}, "ls-tree", "-z", commit, "--", *some))
        for entry in listing.split("\0"):
            head, _, path = entry.partition("\t")
            if path in found and head.split()[1] == "blob":
                ids[path] = head.split()[2]
    return found | _blobs(repository, {}, ids)


def _blobs(
    repository: Path, environment: Mapping[str, str], ids: Mapping[str, str]
) -> dict[str, bytes]:
    """The content of blobs by path."""
    wanted = "".join(f"{name}\n" for name in ids.values()).encode()
    data = _git(repository, environment, "cat-file", "--batch", stdin=wanted) if ids else b""
    found = {}
    for path in ids:
        head, _, data = data.partition(b"\n")
        size = int(head.split()[2])
        found[path], data = data[:size], data[size + 1 :]
    return found


def patched_paths(diff: str) -> frozenset[str]:
    """The paths that a git diff names, old and new."""
    return inspect_diff(diff.encode()) if diff.strip() else frozenset()


def _patched(task: Task, repository: Path, paths: tuple[str, ...]) -> dict[str, bytes | None]:
    """Files of base_commit with test_patch on top, in an index and an object store aside."""
    with tempfile.TemporaryDirectory(prefix="patchgym-trusted-") as aside:
        objects = _git(repository, {}, "rev-parse", "--git-path", "objects").decode().strip()
        environment = {
            "GIT_INDEX_FILE": f"{aside}/index",
            "GIT_OBJECT_DIRECTORY": aside,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((repository / objects).resolve()),
        }
        _git(repository, environment, "read-tree", task.base_commit)
        try:
            patch = task.test_patch.encode()
            _git(repository, environment, "apply", "--cached", "-", stdin=patch)
        except TaskError as error:
            raise TaskError(f"{task.id}: test_patch does not apply ({error}): mend it") from error
        wanted = sorted({*paths, *patched_paths(task.test_patch)})
        listing = _git(repository, environment, "ls-files", "-s", "-z", "--", *wanted)
        found: dict[str, bytes | None] = dict.fromkeys(wanted)
        ids = {}
        for entry in _text(listing).split("\0"):
            head, _, path = entry.partition("\t")
            if path in found:
                ids[path] = head.split()[1]
        return found | _blobs(repository, environment, ids)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _git(
    repository: Path, environment: Mapping[str, str], *words: str, stdin: bytes = b""
) -> bytes:
    try:
        literal = "--literal-pathspecs"
        return run_git(repository, literal, *words, variables=environment, stdin=stdin)
    except GitFailure as error:
        raise TaskError(str(error)) from error


def commit_files(files: Mapping[str, str], folder: Path) -> "Repo":
    """A new repository in the empty `folder`: one commit whose id depends on the files alone."""
    from git import Actor, Repo

    # No template, a fixed hash and the local encoding: the user's settings must not change the id.
    repo = Repo.init(
        folder,
        initial_branch="main",
        object_format="sha1",
        env=own_git(folder),
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


def own_git(folder: Path) -> dict[str, str]:
    """Environment under which git works on that folder, whatever the caller's settings are."""
    return {
        "GIT_DIR": str(folder / ".git"),
        "GIT_WORK_TREE": str(folder),
        "GIT_TEMPLATE_DIR": "",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write files below `folder`, byte for byte, with mode 644."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        file.chmod(0o644)


def is_intact(folder: Path, commit: str) -> bool:
    """Is `commit` checked out there, with every object of it readable and true to its name?

    Only for repositories that commit_files made: it reads loose objects by itself, which takes
    less than a millisecond where a git process takes several.
    """
    git = folder / ".git"
    try:
        head = (git / "HEAD").read_text().removeprefix("ref: ").strip()
        if (git / head).read_text().strip() != commit:
            return False
        tree = _object(git, commit).split()[1].decode()
        return _is_true(git, tree, folder)
    except (OSError, ValueError, IndexError, zlib.error):
        return False


def _is_true(git: Path, tree: str, folder: Path) -> bool:
    """Does the folder hold what that tree names, file by file?"""
    rest = _object(git, tree)
    while rest:
        entry, _, rest = rest.partition(b"\0")
        mode, _, raw_name = entry.partition(b" ")
        path, name, rest = folder / os.fsdecode(raw_name), rest[:20].hex(), rest[20:]
        if mode == b"40000":
            same = _is_true(git, name, path)
        else:
            plain = stat.S_ISREG(path.lstat().st_mode) and mode == b"100644"
            same = plain and path.read_bytes() == _object(git, name)
        if not same:
            return False
    return True


def _object(git: Path, name: str) -> bytes:
    """Content of a loose object; ValueError when it isn't what its name says."""
    data = zlib.decompress((git / "objects" / name[:2] / name[2:]).read_bytes())
    if hashlib.sha1(data, usedforsecurity=False).hexdigest() != name:
        raise ValueError(f"object {name} is damaged")
    return data.partition(b"\0")[2]


def _build(task: Task, target: Path) -> None:
    """Make the repository beside `target` and move it there; the caller holds the lock."""
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        new = temporary / "new"
        new.mkdir(mode=0o755)
        with commit_files(task.files or {}, new) as repo:
            made = repo.head.commit.hexsha
            # GitPython leaves the index without file times; git would call every file changed.
            repo.git.update_index(refresh=True, env=own_git(new))
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
    path = Path(task.repository or "")
    try:
        _git(path, {}, "rev-parse", "--git-dir")
    except TaskError as error:
        raise TaskError(f"{task.id}: {path} is no git repository: clone it there") from error
    try:
        kind = _git(path, {}, "cat-file", "-t", task.base_commit).strip()
    except TaskError as error:
        raise _missing(task, path) from error
    if kind != b"commit":
        raise _missing(task, path)
    return path


def _missing(task: Task, path: Path) -> TaskError:
    return TaskError(
        f"{task.id}: base_commit {task.base_commit} is not in {path}: fetch it "
        f"(git -C {path} fetch origin {task.base_commit}), or correct base_commit"
    )
