"""A git folder of our own over somebody's objects, so that nothing of their repository runs here.

Hooks, filters, text conversions, fsmonitor and remote helpers come from a repository's own
configuration. The view has none of it: it borrows the objects alone, and git works in the view.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from patchgym.sandbox.host_git import GitFailure, run_git

from .errors import MiningError, MissingObjects

APART = {
    "HOME": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
"""Git neither writes into what it reads, nor fetches what is missing, nor shows one for another."""
BINARY = "binary-attributes"
CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
[gc]
\tauto = 0
[remote "origin"]
\turl = /{name}
"""
_OWNER = re.compile(r"[:/]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A repository to be read."""

    folder: Path
    """The git folder that is ours."""
    source: Path
    """The repository that it shows."""
    head: str
    """Full id of the newest commit."""
    shallow: frozenset[str]
    """Commits whose parents the clone lacks."""
    name: str
    """owner/name: as it was given, by its remote `origin`, or the two folders that it is in."""
    named: bool
    """Whether that is the repository's name, not its folders'."""

    @property
    def binary(self) -> Path:
        """Attributes for `core.attributesFile` that have git write every file as binary."""
        return self.folder / BINARY

    def git(self, *words: str, stdin: bytes = b"") -> bytes:
        """The output of a git command on it. Raises MiningError, MissingObjects. Blocking."""
        return ask_git(self.folder, *words, stdin=stdin)

    def resolve(self, name: str) -> str | None:
        """Full id of the commit that a branch, tag or id of the repository names."""
        return _resolved(self.source, name)


def open_view(repository: Path, folder: Path, name: str | None = None) -> View:
    """Make the view of a repository in `folder`, anew. Blocking.

    Raises MiningError for what is no repository, and for one without commits.
    """
    source, folder = repository.resolve(), folder.absolute()
    objects, shallow = _places(source)
    head = _resolved(source, "HEAD")
    if head is None:
        raise MiningError(f"{repository}: no commit in its HEAD: commit, or check out a branch")
    if len(head) != 40:
        raise MiningError(f"{repository}: its ids are SHA-256, which tasks can't hold: use SHA-1")
    cut = shallow.read_text() if shallow.exists() else ""
    known = name or _origin(source)
    view = View(
        folder=folder,
        source=source,
        head=head,
        shallow=frozenset(cut.split()),
        name=known or _folders(source),
        named=known is not None,
    )
    _make(view, objects, cut)
    return view


def _places(source: Path) -> tuple[Path, Path]:
    """Its folder of objects, and its file of shallow commits."""
    if not source.is_dir():
        raise MiningError(f"{source}: no such folder: name a git repository")
    try:
        told = ask_git(
            source, "rev-parse", "--path-format=absolute",
            "--git-path", "objects", "--git-path", "shallow",
        )  # fmt: skip
    except MiningError as error:
        raise MiningError(f"{source} is no git repository: clone it there") from error
    objects, shallow = os.fsdecode(told).splitlines()
    return Path(objects), Path(shallow)


def _make(view: View, objects: Path, shallow: str) -> None:
    folder = view.folder
    tags = ask_git(view.source, "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "objects" / "info").mkdir(parents=True)
        (folder / "refs" / "heads").mkdir(parents=True)
        (folder / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
        (folder / "refs" / "heads" / "main").write_text(f"{view.head}\n")
        (folder / "packed-refs").write_bytes(tags)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(CONFIG.format(name=view.name))
        view.binary.write_text("* -diff\n")
        if shallow:
            (folder / "shallow").write_text(shallow)
    except OSError as error:
        raise MiningError(f"{folder}: can't be written: {error.strerror}") from error


def _resolved(source: Path, name: str) -> str | None:
    words = ("rev-parse", "--verify", "-q", "--end-of-options", f"{name}^{{commit}}")
    try:
        return ask_git(source, *words).decode().strip()
    except MiningError:
        return None


def _origin(source: Path) -> str | None:
    try:
        address = ask_git(source, "config", "--local", "--get", "remote.origin.url")
    except MiningError:
        return None
    text = address.decode("utf-8", "replace").strip()
    found = _OWNER.search(text) if "://" in text or re.match(r"[\w.-]+@[\w.-]+:", text) else None
    return f"{found[1]}/{found[2]}" if found else None


def _folders(source: Path) -> str:
    """owner/name that stands for a repository without a remote: its folder's, and that above."""
    parts = [re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-._") for part in source.parts[-2:]]
    owner, name = ["local", *parts][-2:]
    return f"{owner or 'local'}/{name.removesuffix('.git') or 'repository'}"


def ask_git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    """The output of a git command. Raises MiningError with its complaint."""
    variables = {**APART, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        return run_git(folder, "--literal-pathspecs", *words, variables=variables, stdin=stdin)
    except GitFailure as error:
        kind = MissingObjects if re.search(_MISSING, str(error)) else MiningError
        raise kind(f"git {words[0]} in {folder}: {error}") from error


_MISSING = r"unable to read|bad object|missing|could not (?:get|read) object|promisor|corrupt"
