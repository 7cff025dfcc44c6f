"""What a commit of a local repository says of its environment: its manifests, dates and names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from patchgym.datasets.repository import read_files
from patchgym.datasets.task import TaskError
from patchgym.sandbox.host_git import GitFailure, run_git

from .manifests import is_manifest, version_paths

LIMIT = 120.0  # seconds for one git command
MOST = 400  # manifests that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A commit, as far as environments go."""

    files: Mapping[str, bytes]
    """Every path; the content only of what matters."""
    committed: datetime
    """When it was committed."""
    changed: datetime
    """When its manifests last changed."""
    release: str
    """Version of the newest tag before it; empty without one."""
    names: tuple[str, ...]
    """What the repository may be called, owner/name."""


def read_tree(repository: Path, commit: str, subproject: str = "") -> Tree:
    """Read a commit. Blocking. Raises TaskError when it is not there."""
    paths = _git(repository, "ls-tree", "-rz", "--name-only", commit).split("\0")
    prefix = f"{subproject.strip('/')}/" if subproject.strip("/") else ""
    below = [path.removeprefix(prefix) for path in paths if path and path.startswith(prefix)]
    matter = [path for path in below if is_manifest(path) and path.count("/") < 2]
    wanted = [prefix + path for path in (*matter, *version_paths(below))][:MOST]
    contents = read_files(repository, commit, wanted)
    quiet = ("conftest.py", "pytest.ini", "Makefile")
    manifests = [prefix + path for path in matter if not path.endswith(quiet)]
    committed = _date(_git(repository, "log", "-1", "--format=%ct", commit))
    changed = _git(repository, "log", "-1", "--format=%ct", commit, "--", *manifests[:MOST])
    return Tree(
        files={path: contents.get(path) or b"" for path in paths if path},
        committed=committed,
        changed=_date(changed) if manifests and changed.strip() else committed,
        release=_release(repository, commit),
        names=_names(repository),
    )


def _release(repository: Path, commit: str) -> str:
    try:
        tag = _git(repository, "describe", "--tags", "--abbrev=0", commit).strip()
    except TaskError:
        return ""
    found = re.search(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)?", tag)
    return found[0] if found else ""


def _names(repository: Path) -> tuple[str, ...]:
    """By the address of its origin, and by the folders it is in, `owner+name` or `owner/name`."""
    try:
        address = _git(repository, "config", "--get", "remote.origin.url").strip()
    except TaskError:
        address = ""
    found = re.search(r"([\w.-]+)/([\w.-]+?)(\.git)?/*$", address)
    names = [f"{found[1]}/{found[2]}"] if found else []
    path = repository.resolve()
    for folder in (path.parent, path):
        name = folder.name.removesuffix(".git")
        if "+" in name:
            return (*names, name.replace("+", "/", 1))
    return (*names, f"{path.parent.name}/{path.name.removesuffix('.git')}")


def _date(text: str) -> datetime:
    return datetime.fromtimestamp(int(text.split()[0]), UTC)


def _git(repository: Path, *words: str) -> str:
    try:
        found = run_git(repository, "--literal-pathspecs", *words, timeout=LIMIT)
    except GitFailure as error:
        raise TaskError(f"{repository}: git {words[0]}: {error}") from error
    return found.decode("utf-8", "surrogateescape")
