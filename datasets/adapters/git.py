"""Commits that exist nowhere yet: a repository's files at one commit, with a change on top."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchgym.sandbox.host_git import GitFailure, run_git

from .base import Unusable

WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (
        ("NAME", "patchgym"),
        ("EMAIL", "patchgym@localhost"),
        ("DATE", "946684800 +0000"),
    )
}
"""The same for everybody, so that the same change makes the same commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A commit with a bug in it and without the tests that would tell."""

    repository: Path
    """A bare repository that holds the commit, and none of what led to it."""
    commit: str
    """What attempts start from."""
    fix: str
    """Diff that takes the bug out again."""
    tests: str
    """Diff that puts the tests back."""


def resolve(repository: Path, name: str) -> str:
    """The full id of a commit; Unusable when it is not there."""
    try:
        found = _git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except _GitError as error:
        raise Unusable(f"{name} is no commit of {repository}: fetch it there") from error
    return found.decode().strip()


def break_commit(mirror: Path, start: str, bug: str, hidden: Sequence[str], folder: Path) -> Broken:
    """`start` of a repository with the diff `bug`, without the files `hidden`, in a new repository.

    The mirror is only read. Blocking. Raises Unusable when the diff does not apply.
    """
    commit = resolve(mirror, start)
    clean = _git(mirror, "rev-parse", f"{commit}^{{tree}}").decode().strip()
    store = folder / f"{clean}.git"
    _bring(mirror, clean, store)
    with tempfile.TemporaryDirectory(prefix="patchgym-break-") as aside:
        index = {"GIT_INDEX_FILE": f"{aside}/index"}
        _git(store, "read-tree", clean, variables=index)
        try:
            _git(store, "apply", "--cached", "-", variables=index, stdin=bug.encode())
        except _GitError as error:
            raise Unusable(f"its patch does not apply to {commit} ({error})") from error
        buggy = _git(store, "write-tree", variables=index).decode().strip()
        if hidden:
            gone = "".join(f"0 {'0' * 40}\t{path}\0" for path in hidden).encode()
            _git(store, "update-index", "-z", "--index-info", variables=index, stdin=gone)
        tree = _git(store, "write-tree", variables=index).decode().strip()
    made = _git(store, "commit-tree", tree, "-m", "Start", variables=WHO).decode().strip()
    _git(store, "update-ref", f"refs/heads/{made}", made)  # or a clean-up would take it
    return Broken(
        repository=store,
        commit=made,
        fix=_diff(store, buggy, clean),
        tests=_diff(store, tree, buggy),
    )


def _bring(mirror: Path, tree: str, store: Path) -> None:
    """A bare repository with that tree and nothing else; made once."""
    if (store / "complete").exists():
        return
    store.mkdir(parents=True, exist_ok=True)
    _git(store, "init", "--quiet", "--bare", "--template=")
    names = _git(mirror, "rev-list", "--objects", "--no-object-names", tree)
    pack = _git(mirror, "pack-objects", "--quiet", "--stdout", stdin=names)
    _git(store, "index-pack", "--stdin", stdin=pack)
    (store / "complete").touch()


def _diff(store: Path, old: str, new: str) -> str:
    words = ("--binary", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index")
    try:
        return _git(store, "diff", *words, old, new).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable(
            "its patch touches lines that are not UTF-8, which a task can't hold"
        ) from error


class _GitError(Unusable):
    """What git said, on one line."""


def _git(
    repository: Path, *words: str, variables: Mapping[str, str] | None = None, stdin: bytes = b""
) -> bytes:
    try:
        return run_git(repository, *words, variables=variables, stdin=stdin)
    except GitFailure as error:
        raise _GitError(str(error)) from error
