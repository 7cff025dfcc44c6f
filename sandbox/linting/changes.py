"""What a diff changed, told by git from an object store and an index of our own.

The work tree, its index and its objects stay as they are. Nothing in the tree has a say in it: not
.gitignore (a diff could hide a new file with it) nor .gitattributes (or call a file binary).
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import anyio.to_thread

from patchgym.sandbox.container import Sandbox
from patchgym.sandbox.errors import SandboxUsageError
from patchgym.sandbox.patch import GIT, ISOLATED

FILE_LIMIT = 1 << 20  # bytes of one file, in either state
TOTAL_LIMIT = 32 << 20  # bytes of all of them, of each state
PATHS_LIMIT = 5000
BLOB_LIMIT = 64 << 20  # bytes of a file that git is given at all
LISTING_LIMIT = 32 << 20  # bytes of git's answers
GIT_SECONDS = 60.0
STEERS = "it configures a linter, so the base commit's is used"
REGULAR, LINK = 0o100000, 0o120000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A place where the two states differ."""

    old: int
    """First line before, from 1; with no lines, the line behind which they were put in."""
    old_count: int
    new: int
    """First line after, from 1; with no lines, the line behind which they were."""
    new_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file in both states."""

    path: str
    """After, or before if it is gone."""
    before: bytes | None
    """None when it is new."""
    after: bytes | None
    """None when it is gone."""
    hunks: tuple[Hunk, ...]
    """In order, without context."""
    steers: bool = False
    """It configures a linter: those that go by configuration don't see it."""

    def touched(self, first: int, last: int) -> bool:
        """Whether one of these lines, after, was put there by the diff."""
        end = bisect_right(self.hunks, last, key=lambda hunk: hunk.new)
        for hunk in reversed(self.hunks[:end]):
            if hunk.new_count and first < hunk.new + hunk.new_count:
                return True
            if hunk.new < first:
                return False
        return False

    def after_line(self, line: int) -> int | None:
        """Where a line from before is now; None when it was taken away."""
        end = bisect_right(self.hunks, line, key=lambda hunk: hunk.old + (not hunk.old_count))
        if not end:
            return line
        hunk = self.hunks[end - 1]
        behind = hunk.old + (hunk.old_count or 1)
        if line < behind:
            return None
        return line - behind + hunk.new + (hunk.new_count or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that a diff changed, as far as it can be linted."""

    files: tuple[ChangedFile, ...] = ()
    """Sorted by path."""
    skipped: Mapping[str | None, str] = field(default_factory=dict)
    """Why a path is not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A path that differs, and the blobs of it."""

    path: str
    before: str | None
    after: str | None
    hunks: tuple[Hunk, ...]


class Repository:
    """git in a sandbox's workdir, with objects and an index aside."""

    def __init__(self, sandbox: Sandbox, folder: str) -> None:
        """`folder` is for what git writes, inside; it must be there."""
        self._sandbox = sandbox
        self._environment = {
            **ISOLATED,
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{sandbox.spec.workdir}/.git/objects",
        }

    async def run(self, command: str | Sequence[str], stdin: bytes = b"") -> bytes:
        """What a git command prints; a string is a shell's, with $GIT in it. Raises
        SandboxUsageError when it fails."""
        words: Sequence[str] = (*GIT, *command)
        if isinstance(command, str):
            words = ["sh", "-c", command.replace("$GIT", shlex.join(GIT))]
        result = await self._sandbox.run(
            words,
            timeout=GIT_SECONDS,
            environment=self._environment,
            stdin=stdin,
            output_limit=2 * LISTING_LIMIT,
        )
        output = result.stdout.head + result.stdout.tail
        if not result.ok or result.stdout.dropped or len(output) > LISTING_LIMIT:
            complaint = (result.stderr.text().strip().splitlines() or ["no reason given"])[0]
            raise SandboxUsageError(f"git can't tell the changes: {complaint[:300]}")
        return output

    async def base_files(self) -> dict[str, str]:
        """The blobs of the base commit's regular files, by path."""
        found = {}
        for entry in _split(await self.run(["ls-tree", "-r", "-z", "--full-tree", "HEAD"])):
            facts, _, path = entry.partition("\t")
            mode, _, blob = facts.split(" ")
            if mode.startswith("100"):
                found[path] = blob
        return found

    async def contents(self, blobs: Collection[str]) -> dict[str, bytes | None]:
        """By blob; None for one that is over the limit, alone or with those before it."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        sizes = await self.run(
            ["cat-file", "--batch-check=%(objectname) %(objectsize)"], stdin=asked
        )
        left, taken = TOTAL_LIMIT - 100 * len(blobs), []
        for line in sizes.decode().splitlines():
            blob, _, size = line.partition(" ")
            if int(size) <= min(FILE_LIMIT, left):
                left -= int(size)
                taken.append(blob)
        asked = "".join(f"{blob}\n" for blob in taken).encode()
        data = await self.run(["cat-file", "--batch"], stdin=asked) if taken else b""
        return dict.fromkeys(blobs) | dict(_blobs(data))

    async def changes(
        self,
        paths: Iterable[str] | None,
        *,
        wants: Callable[[str], bool],
        wants_bare: Callable[[str], bool],
        configuration: Collection[str],
    ) -> Changes:
        """What differs from HEAD at `paths`, by default at all that git sees as changed.

        `wants` says whether a path is to be linted, `wants_bare` whether it is by a linter that
        knows no configuration: only such are in the result. Files named as in `configuration` are
        for the latter alone; the index aside has them as they are at HEAD. Raises
        SandboxUsageError.
        """
        skipped: dict[str | None, str] = {}
        asked = await self._changed() if paths is None else paths
        wanted = {path: wants(path) or wants_bare(path) for path in asked}
        chosen = sorted(wanted, key=lambda path: (not wants(path), not wanted[path], path))
        if any(wanted[path] for path in chosen[PATHS_LIMIT:]):
            skipped[None] = f"more than {PATHS_LIMIT} changed files"
        fit: list[str] = []
        steering: set[str] = set()
        for path in chosen[:PATHS_LIMIT]:
            reason = _unfit(path)
            if reason is None and path.rpartition("/")[2] in configuration:
                steering.add(path)
                reason = STEERS if wants(path) else None
            elif reason is None:
                fit.append(path)
            if reason is not None and wanted[path]:
                skipped[path.encode("utf-8", "backslashreplace").decode()] = reason
        links = await self._stage([*fit, *sorted(steering)])
        skipped.update((path, "a symlink") for path in links if wanted[path])
        entries = [
            entry
            for entry in await self._entries()
            if wants_bare(entry.path) or (entry.path not in steering and wants(entry.path))
        ]
        if steering:
            await self._stage(fit)
        return await self._load(entries, skipped, steering)

    async def _changed(self) -> list[str]:
        words = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]
        result = await self._sandbox.run(
            (*GIT, *words), timeout=GIT_SECONDS, environment=ISOLATED, output_limit=LISTING_LIMIT
        )
        if not result.ok or result.stdout.dropped:
            complaint = (result.stderr.text().strip().splitlines() or ["no reason given"])[0]
            raise SandboxUsageError(f"no usable git checkout in the workdir: {complaint[:300]}")
        return [entry[3:] for entry in _split(result.stdout.head + result.stdout.tail)]

    async def _stage(self, paths: Sequence[str]) -> list[str]:
        """Make the index aside that of the new state; returns the paths that are symlinks."""
        listed = "\0".join(paths).encode()
        # a path that is gone makes stat complain, and is no failure
        told = await self.run(
            "$GIT read-tree HEAD && { xargs -0 stat -c '%f %s %n' -- 2>/dev/null || true; }", listed
        )
        modes: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for line in told.decode().splitlines():
            mode, size, path = line.split(" ", 2)
            modes[path], sizes[path] = int(mode, 16), int(size)
        regular = [path for path in paths if modes.get(path, 0) & 0o170000 == REGULAR]
        regular = [path for path in regular if sizes[path] <= BLOB_LIMIT]
        names = "".join(_quoted_path(path) + "\n" for path in regular).encode()
        words = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
        blobs = (await self.run(words, names)).decode().split() if regular else []
        lines = [f"0 {'0' * 40}\t{path}\0" for path in paths if path not in modes]
        lines += [
            f"{'100755' if modes[path] & 0o100 else '100644'} {blob}\t{path}\0"
            for path, blob in zip(regular, blobs, strict=True)
        ]
        await self.run(["update-index", "--replace", "-z", "--index-info"], "".join(lines).encode())
        return [path for path, mode in modes.items() if mode & 0o170000 == LINK]

    async def _entries(self) -> list[_Entry]:
        """What differs between HEAD and the index aside, renames paired."""
        diff = "diff --cached --no-ext-diff --no-textconv --no-color --no-relative -M HEAD"
        raw = await self.run([*diff.split(), "--raw", "--no-abbrev", "-z"])
        # what stands in a file begins with a plus or a minus there, so it can't look like these
        short = f"$GIT {diff} -U0 --inter-hunk-context=0 --text --patch"
        told = await self.run(f"{short} | grep -a -e '^diff --git ' -e '^@@ ' || true")
        return list(_paired(_split(raw), told))

    async def _load(
        self,
        entries: Sequence[_Entry],
        skipped: Mapping[str | None, str],
        steering: Collection[str],
    ) -> Changes:
        blobs = {blob for entry in entries for blob in (entry.before, entry.after) if blob}
        contents = await self.contents(sorted(blobs))
        return await anyio.to_thread.run_sync(_readable, entries, contents, skipped, steering)


def _readable(
    entries: Sequence[_Entry],
    contents: Mapping[str, bytes | None],
    skipped: Mapping[str | None, str],
    steering: Collection[str],
) -> Changes:
    """The files that are text, of a fit size, in both states."""
    files: list[ChangedFile] = []
    reasons = dict(skipped)
    for entry in sorted(entries, key=lambda entry: entry.path):
        states = [contents[blob] if blob else b"" for blob in (entry.before, entry.after)]
        reason = next(filter(None, map(_unfit_content, states)), None)
        if reason is not None:
            reasons[entry.path] = reason
            continue
        files.append(
            ChangedFile(
                path=entry.path,
                before=states[0] if entry.before else None,
                after=states[1] if entry.after else None,
                hunks=entry.hunks,
                steers=entry.path in steering,
            )
        )
    return Changes(files=tuple(files), skipped=reasons)


def _unfit(path: str) -> str | None:
    """Why a path is left as it is at the base commit."""
    if re.search(r"[\x00-\x1f\x7f]", path):
        return "there are control characters in its name"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None


def _unfit_content(data: bytes | None) -> str | None:
    """Why a file's content can't be linted."""
    if data is None:
        return f"over {FILE_LIMIT >> 20} MiB, or {TOTAL_LIMIT >> 20} MiB with the others"
    if b"\0" in data:
        return "a binary file"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return None


def _split(data: bytes) -> list[str]:
    return [entry for entry in data.decode("utf-8", "surrogateescape").split("\0") if entry]


def _quoted_path(path: str) -> str:
    """As git reads paths from lines: one that begins with a quote must be quoted."""
    if not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _blobs(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        blob, _, size = data[at:end].decode().split(" ")
        at = end + 1 + int(size)
        yield blob, data[end + 1 : at]
        at += 1


def _paired(raw: Sequence[str], told: bytes) -> Iterator[_Entry]:
    """The entries of a raw diff, each with its hunks from the patch, which has the same order."""
    groups = iter(told.split(b"diff --git ")[1:])
    fields = iter(raw)
    for facts in fields:
        before_mode, after_mode, before, after, status = facts[1:].split(" ")
        path = next(fields)
        if status[0] in "RC":
            path = next(fields)
        group = next(groups, b"")
        if status[0] == "T":  # git shows one file go and another come
            group = next(groups, b"")
        old = before if before_mode.startswith("100") else None
        new = after if after_mode.startswith("100") else None
        if old != new:
            yield _Entry(path=path, before=old, after=new, hunks=tuple(_hunks(group)))


def _hunks(group: bytes) -> Iterator[Hunk]:
    for line in group.split(b"\n"):
        header = re.match(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line)
        if header:
            old, old_count, new, new_count = (int(n or 1) for n in header.groups(b"1"))
            yield Hunk(old=old, old_count=old_count, new=new, new_count=new_count)
