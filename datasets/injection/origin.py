"""Where the code comes from, and where the bugs go: a bare repository of our own.

A local git repository, a plain folder or an sdist is only read: its files are copied into ours as
one commit without a past. Each bug is another such commit there; nothing leads from one to another.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchgym.datasets.task import TaskError
from patchgym.sandbox.host_git import GitFailure, run_git

PERSON = {
    "GIT_AUTHOR_NAME": "patchgym",
    "GIT_AUTHOR_EMAIL": "patchgym@localhost",
    "GIT_COMMITTER_NAME": "patchgym",
    "GIT_COMMITTER_EMAIL": "patchgym@localhost",
}
MESSAGE = b"Start\n"
APART = {"GIT_TEMPLATE_DIR": "", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
"""Git neither writes into what it reads nor fetches what is missing."""
UNPACKED = 512 << 20  # bytes of an sdist


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Code to put bugs into, in a repository of ours."""

    name: str
    """What the code is called, from the folder's or the archive's name."""
    repository: Path
    """Bare git repository that only patchgym writes to."""
    commit: str
    """Its files as one commit without parents."""
    tree: str
    """That commit's tree: the same for the same files, wherever they lay."""
    date: int
    """When the code was written, seconds since 1970: of the commit, or of the newest file. All our
    commits bear it, so that environments get packages of that time."""

    def paths(self) -> tuple[str, ...]:
        """All regular files."""
        listing = _git(self.repository, "ls-tree", "-r", "-z", self.commit)
        entries = [entry.partition("\t") for entry in _text(listing).split("\0") if entry]
        return tuple(path for head, _, path in entries if head.startswith("100"))

    def bug(self, files: Mapping[str, bytes], name: str) -> str:
        """A commit without parents that has these files changed. Blocking, as are all here."""
        with tempfile.TemporaryDirectory(prefix="patchgym-bug-") as aside:
            index = {"GIT_INDEX_FILE": f"{aside}/index"}
            _git(self.repository, "read-tree", self.commit, environment=index)
            for path, data in sorted(files.items()):
                blob = _word(_git(self.repository, "hash-object", "-w", "--stdin", stdin=data))
                mode = _text(_git(self.repository, "ls-files", "-s", path, environment=index))
                entry = f"{mode.split()[0]},{blob},{path}"
                _git(self.repository, "update-index", "--cacheinfo", entry, environment=index)
            tree = _word(_git(self.repository, "write-tree", environment=index))
        commit = _commit_tree(self.repository, tree, self.date)
        _git(self.repository, "update-ref", f"refs/bugs/{name}", commit)
        return commit

    def fix(self, bug: str) -> str:
        """The diff that takes a bug out again."""
        words = ("diff", "--no-color", "--no-ext-diff", "--no-renames", "--src-prefix=a/")
        diff = _git(self.repository, *words, "--dst-prefix=b/", bug, self.commit)
        return diff.decode("utf-8")


def open_origin(source: Path, repository: Path, *, commit: str = "HEAD") -> Origin:
    """Copy the files of a git repository at `commit`, of a folder, or of an sdist (.tar.gz).

    `repository` is made when missing. Raises TaskError when there is nothing to read.
    """
    if not source.exists():
        raise TaskError(f"{source}: no such file or folder: name a repository, folder or sdist")
    repository = repository.resolve()
    repository.parent.mkdir(parents=True, exist_ok=True)
    _git(repository.parent, "init", "-q", "--bare", "--object-format=sha1", str(repository))
    name = source.resolve().name
    if source.is_file():
        with _unpacked(source) as folder:
            name, tree = folder.name, _tree_of_folder(folder, repository)
            date = _newest(folder)
    elif (source / ".git").exists() or (source / "objects").is_dir():
        tree = _tree_of_repository(source, commit, repository)
        date = int(_word(_git(source, "log", "-1", "--format=%ct", commit)))
    else:
        tree, date = _tree_of_folder(source, repository), _newest(source)
    made = _commit_tree(repository, tree, date)
    _git(repository, "update-ref", "refs/heads/main", made)
    return Origin(
        name=name.removesuffix(".git"), repository=repository, commit=made, tree=tree, date=date
    )


def _tree_of_repository(source: Path, commit: str, target: Path) -> str:
    try:
        tree = _word(_git(source, "rev-parse", "--verify", f"{commit}^{{tree}}"))
    except TaskError as error:
        raise TaskError(f"{source}: no commit {commit} in it: name another") from error
    listing = _text(_git(source, "ls-tree", "-r", "-t", "-z", tree))
    ids = [tree]
    for entry in listing.split("\0"):
        kind = entry.partition("\t")[0].split()
        if kind and kind[1] != "commit":  # a submodule's files are not here
            ids.append(kind[2])
    wanted = "".join(f"{each}\n" for each in dict.fromkeys(ids)).encode()
    pack = _git(source, "pack-objects", "--stdout", "-q", stdin=wanted)
    _git(target, "unpack-objects", "-q", stdin=pack)
    return tree


def _tree_of_folder(source: Path, target: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="patchgym-index-") as aside:
        environment = {
            "GIT_DIR": str(target.resolve()),
            "GIT_WORK_TREE": str(source.resolve()),
            "GIT_INDEX_FILE": f"{aside}/index",
        }
        settings = ("-c", "core.autocrlf=false", "-c", "core.bare=false")
        _git(source, *settings, "add", "--all", ".", environment=environment)
        tree = _word(_git(source, "write-tree", environment=environment))
        if not _git(source, "ls-tree", tree, environment=environment):
            raise TaskError(f"{source}: no files in it: name a folder with code and tests")
        return tree


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    """The one folder of an sdist."""
    with tempfile.TemporaryDirectory(prefix="patchgym-sdist-") as aside:
        try:
            with tarfile.open(archive) as tar:
                if sum(member.size for member in tar) > UNPACKED:
                    raise TaskError(f"{archive}: over {UNPACKED >> 20} MiB unpacked: too large")
                tar.extractall(aside, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise TaskError(f"{archive}: no sdist ({error}): give a .tar.gz") from error
        folders = [each for each in Path(aside).iterdir() if each.is_dir()]
        if len(folders) != 1:
            raise TaskError(f"{archive}: no sdist: it has {len(folders)} top folders, not one")
        yield folders[0]


def _newest(folder: Path) -> int:
    """The time of the newest file, whole seconds."""
    return max(int(file.lstat().st_mtime) for file in folder.rglob("*") if not file.is_dir())


def _commit_tree(repository: Path, tree: str, date: int) -> str:
    when = {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
    environment = {**PERSON, **when}
    made = _git(repository, "commit-tree", tree, stdin=MESSAGE, environment=environment)
    return _word(made)


def _git(
    folder: Path, *words: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> bytes:
    variables = {**APART, **(environment or {})}
    try:
        return run_git(folder, "--literal-pathspecs", *words, variables=variables, stdin=stdin)
    except GitFailure as error:
        raise TaskError(f"{folder}: git: {error}") from error


def _word(data: bytes) -> str:
    return data.decode().strip()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
