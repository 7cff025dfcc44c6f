"""The walk over a repository's history: commits, newest first, and what each one changed.

Only the first parent is followed, as a branch's own history tells it: a merge is one change, that
of the whole pull request, as is a squashed one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .errors import MiningError, MissingObjects
from .view import View

LAST = "last"
"""Value of `since` for the newest commit of the run before."""
MERGED = 20  # messages of a merged branch that are read
BLOB_LIMIT = 1 << 20  # bytes of a file that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One step of the history."""

    id: str
    """Full id."""
    parents: tuple[str, ...]
    """Full ids; the first one is what it is compared with."""
    seconds: int
    """When it was committed, in seconds since 1970."""
    message: str

    @property
    def date(self) -> str:
        """When it was committed: ISO 8601, UTC."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One path that a commit changed. A rename is two: one that went, one that came."""

    path: str
    """Relative to the root; bytes that are not UTF-8 are surrogates."""
    status: str
    """A, D, M or T (another type)."""
    modes: tuple[str, str]
    """Git's modes before and after; 000000 where there is none."""
    blobs: tuple[str, str]
    """Ids before and after."""

    @property
    def submodule(self) -> bool:
        """Whether it is the pointer to another repository."""
        return "160000" in self.modes

    @property
    def link(self) -> bool:
        """Whether it is, or was, a symlink."""
        return "120000" in self.modes


def walk(view: View, *, since: str | None, limit: int | None) -> tuple[Commit, ...]:
    """Commits along the first parents, newest first. Blocking.

    `since` is an ISO date, or the name of a commit, which is left out itself. Raises MiningError.
    """
    words = ["log", "--first-parent", "-z", "--format=%H%n%P%n%ct%n%B"]
    after = 0
    last: tuple[str, ...] = ()
    if since is not None:
        moment = _moment(since)
        after = moment or 0
        last = () if moment is not None else (f"^{_named(view, since)}",)
    if limit is not None:
        words.append(f"--max-count={limit}")
    told = view.git(*words, view.head, *last, "--")
    commits = (_commit(part) for part in told.split(b"\0") if part)
    return tuple(commit for commit in commits if commit.seconds >= after)


def order(view: View) -> dict[str, int]:
    """The place of every commit along the first parents, 0 for the oldest. Blocking."""
    told = view.git("rev-list", "--first-parent", "--reverse", view.head).decode()
    return {name: place for place, name in enumerate(told.split())}


def merged_messages(view: View, commit: Commit) -> tuple[str, ...]:
    """The messages of what a merge brought in, oldest first. Blocking."""
    if len(commit.parents) < 2:
        return ()
    told = view.git(
        "log", "-z", "--format=%B", "--no-merges", f"--max-count={MERGED}",
        *commit.parents[1:], f"^{commit.parents[0]}", "--",
    )  # fmt: skip
    parts = [part.decode("utf-8", "replace").strip() for part in told.split(b"\0")]
    return tuple(reversed([part for part in parts if part]))


def changes(view: View, commit: Commit) -> tuple[Changed, ...]:
    """What a commit changed against its first parent. Blocking. Raises MissingObjects."""
    told = view.git(
        "diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev",
        commit.parents[0], commit.id, "--",
    )  # fmt: skip
    words = told.split(b"\0")
    return tuple(_changed(*pair) for pair in zip(words[::2], words[1::2], strict=False))


def contents(view: View, blobs: Iterable[str]) -> dict[str, bytes]:
    """Files by id; those over 1 MiB read as nothing. Blocking. Raises MissingObjects."""
    wanted = sorted({blob for blob in blobs if blob.strip("0")})
    asked = "".join(f"{blob}\n" for blob in wanted).encode()
    sizes = (
        view.git("cat-file", "--batch-check", stdin=asked).decode().splitlines() if wanted else []
    )
    small = []
    for line in sizes:
        name, kind, *size = line.split()
        if kind == "missing":
            raise MissingObjects(f"object {name} is not in the clone: fetch it in full")
        if kind == "blob" and int(size[0]) <= BLOB_LIMIT:
            small.append(name)
    found = dict.fromkeys(wanted, b"")
    asked = "".join(f"{blob}\n" for blob in small).encode()
    data = view.git("cat-file", "--batch", stdin=asked) if small else b""
    place = 0
    for name in small:
        end = data.index(b"\n", place)
        size_ = int(data[place:end].split()[2])
        found[name] = data[end + 1 : end + 1 + size_]
        place = end + size_ + 2
    return found


def diff(view: View, commit: Commit, paths: Sequence[str], binary: Iterable[str] = ()) -> bytes:
    """What a commit did to these paths, as a git diff that applies with git. Blocking.

    Those in `binary` come as binary patches, which hold whatever encoding a file has. Renames are
    found among the paths alone.
    """
    odd = set(binary)
    words = ("-r", "-p", "--binary", "--full-index", "-M", "--no-ext-diff", "--no-textconv")
    made = b""
    for chosen, settings in (
        ([path for path in paths if path not in odd], ()),
        ([path for path in paths if path in odd], ("-c", f"core.attributesFile={view.binary}")),
    ):
        if chosen:
            ends = (commit.parents[0], commit.id, "--", *chosen)
            made += view.git(*settings, "diff-tree", *words, *ends)
    return made


def _commit(part: bytes) -> Commit:
    name, parents, seconds, message = part.split(b"\n", 3)
    return Commit(
        id=name.decode(),
        parents=tuple(parents.decode().split()),
        seconds=int(seconds),
        message=message.decode("utf-8", "replace").replace("\r\n", "\n").strip(),
    )


def _changed(head: bytes, path: bytes) -> Changed:
    before, after, old, new, status = head.decode().removeprefix(":").split()
    return Changed(
        path=os.fsdecode(path), status=status[0], modes=(before, after), blobs=(old, new)
    )


def _moment(since: str) -> int | None:
    """Seconds since 1970 of an ISO date; None for anything else."""
    if "-" not in since:  # 20240531 may be a commit's short id
        return None
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _named(view: View, since: str) -> str:
    found = view.resolve(since)
    if found is None:
        raise MiningError(
            f"--since {since}: neither a date nor a commit of {view.source}: "
            "write 2024-05-31, a commit, a tag, or last"
        )
    return found
