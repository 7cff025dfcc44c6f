"""One commit of a local git repository as a tar archive, without its past or its future.

The archive holds the files and a `.git` with exactly one commit (its parents are cut off as in a
shallow clone, so it keeps its id), one branch, no remote, no tag, no reflog. Its index matches the
files as unpacked, so git inside needs not read them all again. Archives are cached in memory.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from .errors import CheckoutError
from .host_git import GitFailure, run_git

CACHE_BYTES = 256 << 20
FILE_TIME = 1_000_000_000  # every file's mtime; older than the index, or git would distrust it
BRANCH = "main"
EXCLUDE = "__pycache__/\n*.pyc\n.pytest_cache/\n"
CONFIG = f"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tcheckStat = minimal
\ttrustctime = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[user]
\tname = agent
\temail = agent@localhost
[init]
\tdefaultBranch = {BRANCH}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A commit, ready to be unpacked."""

    commit: str
    """Full id of the commit."""
    tar: bytes
    """Uncompressed tar archive of the work tree and its `.git`."""


class _Cache:
    """Snapshots by repository and commit; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
        self._building: dict[tuple[str, str], threading.Lock] = {}

    def get(self, repository: str, commit: str) -> Snapshot:
        """From the cache, or built; two callers who want the same one build it once."""
        key = (repository, commit)
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            found = self.peek(repository, commit) or self._put(key, _build(*key))
        with self._lock:
            self._building.pop(key, None)
        return found

    def peek(self, repository: str, commit: str) -> Snapshot | None:
        """From the cache, or None."""
        with self._lock:
            found = self._entries.get((repository, commit))
            if found is not None:
                self._entries.move_to_end((repository, commit))
            return found

    def _put(self, key: tuple[str, str], made: Snapshot) -> Snapshot:
        with self._lock:
            self._entries[key] = made
            size = sum(len(entry.tar) for entry in self._entries.values())
            while size > self._limit and len(self._entries) > 1:
                size -= len(self._entries.popitem(last=False)[1].tar)
        return made


_cache = _Cache(CACHE_BYTES)


async def snapshot(repository: Path, commit: str) -> Snapshot:
    """The snapshot of a commit; any name git knows will do, a full id is fastest.

    Raises CheckoutError when the repository or the commit is not there.
    """
    place = str(repository if repository.is_absolute() else Path.cwd() / repository)
    found = _cache.peek(place, commit)
    if found is not None:
        return found
    return await anyio.to_thread.run_sync(_resolve_and_get, place, commit)


def _resolve_and_get(place: str, commit: str) -> Snapshot:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        name = f"{commit}^{{commit}}"
        commit = _git(place, "rev-parse", "--verify", "--end-of-options", name).strip()
    return _cache.get(place, commit)


def _build(place: str, commit: str) -> Snapshot:
    work = tempfile.mkdtemp(prefix="patchgym-snapshot-")
    try:
        _git(work, "init", "-q", "--template=")
        serve = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
        _git(
            work,
            *("-c", "fetch.unpackLimit=1", "-c", "protocol.file.allow=always"),
            *("fetch", "-q", "--depth=1", "--no-tags", f"--upload-pack={serve}"),
            *(Path(place).as_uri(), commit),
        )
        _git(work, "update-ref", f"refs/heads/{BRANCH}", commit)
        _git(work, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
        _git(work, "reset", "-q", "--hard")
        _tidy(Path(work, ".git"))
        _age(Path(work))
        _git(work, "update-index", "-q", "--refresh")
        return Snapshot(commit=commit, tar=_pack(Path(work)))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tidy(folder: Path) -> None:
    shutil.rmtree(folder / "logs", ignore_errors=True)
    for name in ("FETCH_HEAD", "ORIG_HEAD", "description"):
        folder.joinpath(name).unlink(missing_ok=True)
    folder.joinpath("config").write_text(CONFIG)
    folder.joinpath("info").mkdir(exist_ok=True)
    folder.joinpath("info", "exclude").write_text(EXCLUDE)


def _age(root: Path) -> None:
    for folder, names, files in os.walk(root):
        if Path(folder) == root:
            names.remove(".git")
        for name in files:
            os.utime(Path(folder, name), (FILE_TIME, FILE_TIME), follow_symlinks=False)


def _pack(root: Path) -> bytes:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        in_git = member.name.split("/")[1:2] == [".git"]
        member.mtime = FILE_TIME + (2 if in_git else 0)
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if in_git and not member.issym():
            member.mode |= 0o200  # or the agent's own clean-up would stumble over packs
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(os.listdir(root)):
            archive.add(root / name, f"./{name}", filter=plain)
    return buffer.getvalue()


def _git(folder: str, *words: str) -> str:
    own = ("-c", f"init.defaultBranch={BRANCH}")
    try:
        return run_git(folder, *own, *words, variables={"HOME": folder}).decode("utf-8", "replace")
    except GitFailure as problem:
        raise CheckoutError(f"git {words[-1]} in {folder}: {problem.last}") from problem
