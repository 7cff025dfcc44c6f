"""Applies a candidate's diff inside a sandbox as git would, and refuses what it must not do.

Paths are judged twice: here, from the diff's headers, for a clear answer; and by `git apply`, which
is the judge that counts (it refuses `.git`, `..`, absolute paths and paths through symlinks). The
original bytes are applied. The ladder of leniency: exact; recount (wrong line counts in hunk
headers); whitespace (context lines that differ in blanks or line ends); p0 (paths without a/ and
b/); three_way (merged from the blobs that the diff's index lines name, in an index aside; a merge
with conflicts is refused). After it, the changed paths must be among the diff's paths.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from .errors import PatchError, SandboxUsageError

if TYPE_CHECKING:
    from .container import Sandbox
    from .result import CommandResult

PATCH_LIMIT = 8 << 20  # bytes of a diff, in or out
GIT_SECONDS = 60.0

Rung = Literal["exact", "recount", "whitespace", "p0", "three_way"]
Change = Literal["added", "modified", "deleted"]
LADDER: Mapping[Rung, tuple[str, ...]] = MappingProxyType(
    {
        "exact": (),
        "recount": ("--recount",),
        "whitespace": ("--recount", "--ignore-whitespace"),
        "p0": ("--recount", "-p0"),
    }
)
MERGE = """
trap 'rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"' EXIT
cp .git/index "$GIT_INDEX_FILE" && $0 add -A && before=$($0 write-tree) || exit 3
$0 apply --cached --3way - && test -z "$($0 ls-files --unmerged)" || exit 1
$0 diff --binary --full-index --no-ext-diff --no-textconv --no-color "$before" "$($0 write-tree)"
"""
"""Merges a diff into an index aside; prints what that changed as a diff that applies exactly."""
GIT = (
    *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.attributesFile=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "apply.whitespace=nowarn", "-c", "apply.ignoreWhitespace=no", "-c", "safe.directory=*"),
)
ISOLATED: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedFile:
    """What a diff did to one path."""

    path: str
    """Relative to the workdir; a rename is two of them."""
    change: Change
    added: int | None
    """Lines; None for a binary file, and for the old name of a rename."""
    removed: int | None
    """Lines, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPatch:
    """A diff that is in the tree now."""

    rung: Rung
    """How lenient git had to be."""
    paths: tuple[str, ...]
    """Paths that the diff names, sorted; both names of a rename."""
    files: tuple[PatchedFile, ...] = ()
    """What happened to each path that changed, sorted."""


async def apply_patch(sandbox: Sandbox, diff: bytes) -> AppliedPatch:
    """Apply `diff` in the sandbox's workdir; all of it or nothing.

    Raises PatchError; an empty diff applies and changes nothing.
    """
    if not diff.strip():
        return AppliedPatch(rung="exact", paths=())
    inspect_diff(diff)
    if not diff.endswith(b"\n"):
        diff += b"\n"  # cut off by whoever printed it; git calls that corrupt
    before = await _changed(sandbox)
    rung, applied = await _climb(sandbox, diff)
    after = await _changed(sandbox)
    paths = inspect_diff(applied, strip=0 if rung == "p0" else 1)
    moved = {path for path, _ in before ^ after}
    if moved - paths:
        raise PatchError(f"changed {sorted(moved - paths)[0]}, unasked", reason="wrong_paths")
    counts = await _line_counts(sandbox, applied, LADDER.get(rung, ()))
    # a path may have been changed before, and change again without another state
    touched = sorted(paths & (moved | {path for path, _ in after} | counts.keys()))
    states = dict(after)
    files = tuple(
        PatchedFile(
            path=path,
            change=_change(states.get(path), path in {known for known, _ in before}),
            added=counts.get(path, (None, None))[0],
            removed=counts.get(path, (None, None))[1],
        )
        for path in touched
    )
    return AppliedPatch(rung=rung, paths=tuple(sorted(paths)), files=files)


def _change(state: str | None, known: bool) -> Change:
    if state is not None and "D" in state:
        return "deleted"
    return "added" if state == "??" and not known else "modified"


async def _line_counts(
    sandbox: Sandbox, diff: bytes, options: Sequence[str]
) -> dict[str, tuple[int | None, int | None]]:
    """Lines added and removed by path, as git reads the diff; None, None for binary files."""
    result = await _git(sandbox, "apply", *options, "--numstat", "-z", "-", stdin=diff)
    counts: dict[str, tuple[int | None, int | None]] = {}
    for entry in result.stdout.head.decode("utf-8", "surrogateescape").split("\0"):
        added, _, rest = entry.partition("\t")
        removed, _, path = rest.partition("\t")
        if path:
            binary = added == "-"
            counts[path] = (None, None) if binary else (int(added), int(removed))
    return counts


async def worktree_diff(sandbox: Sandbox, commit: str) -> bytes:
    """All changes against `commit`, new files too, made with an index of its own."""
    index = f"/tmp/.patchgym-{secrets.token_hex(8)}"
    options = "--cached --binary --full-index --no-ext-diff --no-textconv --no-color"
    # whatever the checkout's own configuration says of these
    options += " --src-prefix=a/ --dst-prefix=b/ --unified=3 --inter-hunk-context=0 --no-relative"
    git = " ".join(GIT)
    result = await sandbox.run(
        f"cp .git/index {index} && {git} add -A && {git} diff {options} {commit} -- && rm {index}",
        timeout=GIT_SECONDS,
        environment={**ISOLATED, "GIT_INDEX_FILE": index},
        output_limit=PATCH_LIMIT,
    )
    if not result.ok:
        raise SandboxUsageError(f"git can't tell the changes: {_complaint(result)}")
    if result.stdout.dropped:
        raise PatchError(f"the diff is over {PATCH_LIMIT >> 20} MiB", reason="too_large")
    return result.stdout.head + result.stdout.tail


def inspect_diff(diff: bytes, *, strip: int = 1) -> frozenset[str]:
    """The paths that a diff names, without `strip` (0 or 1) leading folders.

    Raises PatchError when one must not be touched.
    """
    if len(diff) > PATCH_LIMIT:
        raise PatchError(f"the diff is over {PATCH_LIMIT >> 20} MiB", reason="too_large")
    paths: set[str] = set()
    link = False
    for line, in_hunk in _lines(diff):
        if in_hunk:
            if link and line.startswith(b"+"):
                _refuse_link(line[1:])
            continue
        if line.startswith(b"diff --git "):
            link = False
        mode = re.match(rb"(?:new file |new |old |deleted file )?mode (\d+)|index \S+ (\d+)", line)
        if mode:
            kind = mode[1] or mode[2]
            if kind == b"160000":
                raise PatchError("the diff holds a submodule", reason="refused")
            link = link or kind == b"120000"
        paths.update(_names(line, strip))
    for path in paths:
        _refuse_path(path)
    if not paths:
        raise PatchError("no file is named in the diff", reason="malformed")
    return frozenset(paths)


def new_modes(diff: bytes) -> dict[str, str]:
    """Git's modes, such as 120000 for a symlink, of the paths that a diff gives a new one."""
    modes: dict[str, str] = {}
    names: list[str] = []
    for line, in_hunk in _lines(diff):
        if not in_hunk and line.startswith(b"diff --git "):
            names = list(_names(line, 1))
        elif not in_hunk and (found := re.match(rb"new (?:file )?mode (\d{6})", line)):
            modes.update(dict.fromkeys(names, found[1].decode()))
    return modes


def _lines(diff: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is inside a hunk by its header's counts."""
    old = new = 0
    for line in diff.split(b"\n"):
        header = re.match(rb"@@ -\d+(?:,(\d{1,18}))? \+\d+(?:,(\d{1,18}))? @@", line)
        if old <= 0 and new <= 0 and header:
            old, new = (int(1 if count is None else count) for count in header.groups())
            yield line, True
        elif line.startswith(b"\\"):
            yield line, True
        elif (old > 0 or new > 0) and not line.startswith(b"diff --git "):
            old -= line[:1] in (b" ", b"-", b"", b"\r")
            new -= line[:1] in (b" ", b"+", b"", b"\r")
            yield line, True
        else:
            old = new = 0
            yield line, False


def _names(line: bytes, strip: int) -> Iterator[str]:
    for start in (b"--- ", b"+++ "):
        if line.startswith(start):
            name = _unquote(line[4:])
            if name != "/dev/null":
                yield _stripped(name, strip)
    for start in (b"rename from ", b"rename to ", b"copy from ", b"copy to "):
        if line.startswith(start):
            yield _unquote(line[len(start) :])
    if line.startswith(b"diff --git "):
        yield from _both_names(line[11:].rstrip(b"\r"), strip)


def _both_names(rest: bytes, strip: int) -> Iterator[str]:
    quoted = re.match(rb'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)$', rest)
    if quoted:
        yield from (_stripped(_unquote(name), strip) for name in quoted.groups())
    elif len(rest) % 2 and rest[2 : len(rest) // 2] == rest[len(rest) // 2 + 3 :]:
        # unquoted blanks: both names are the same then, but for their prefix
        yield _stripped(_unquote(rest[: len(rest) // 2]), strip)


def _stripped(name: str, strip: int) -> str:
    """Without the a/ or b/ that git writes; an absolute name stays whole."""
    whole = name.startswith("/") or strip == 0
    return name if whole else name.partition("/")[2] or name


_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r",
}  # fmt: skip


def _unquote(name: bytes) -> str:
    """A path as git writes it: C quotes, or plain up to a tab."""

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 255]) if code.isdigit() else _ESCAPES.get(code, code)

    name = name.rstrip(b"\r")
    if name.startswith(b'"'):
        name = re.sub(rb"\\([0-7]{1,3}|.)", plain, name[1 : name.rfind(b'"')])
    else:
        name = name.partition(b"\t")[0]
    return name.decode("utf-8", "surrogateescape")


def _refuse_path(path: str) -> None:
    parts = path.split("/")
    if "\0" in path:
        raise PatchError(f"no path can hold a NUL: {path!r}", reason="refused")
    if path.startswith("/"):
        raise PatchError(f"absolute path {path!r}", reason="refused")
    if ".." in parts:
        raise PatchError(f"path leaves the repository: {path!r}", reason="refused")
    if any(part.lower().rstrip(". ") in (".git", "git~1") for part in parts):
        raise PatchError(f"path inside .git: {path!r}", reason="refused")


def _refuse_link(target: bytes) -> None:
    text = target.decode("utf-8", "surrogateescape")
    if text.startswith("/") or ".." in text.split("/"):
        raise PatchError(f"a symlink that leads outside: {text!r}", reason="refused")


async def _climb(sandbox: Sandbox, diff: bytes) -> tuple[Rung, bytes]:
    """The rung that held, and the diff that was applied there."""
    complaints: list[str] = []
    for rung, options in LADDER.items():
        if rung == "p0":
            paths = inspect_diff(diff, strip=0)  # other paths than those that were looked at
            if any(path.startswith(("a/", "b/")) for path in paths):
                continue  # or a new file would land in a folder called b
        result = await _git(sandbox, "apply", *options, "-", stdin=diff)
        if result.ok:
            return rung, diff
        complaints.append(_complaint(result))
        if re.search("symbolic link|invalid path|outside", complaints[-1]):
            raise PatchError(complaints[-1], reason="refused")
    backwards = ("apply", "--recount", "--reverse", "--check", "-")
    if (await _git(sandbox, *backwards, stdin=diff)).ok:
        raise PatchError("the diff is in the tree already", reason="already_applied")
    merged = await _merge(sandbox, diff)
    if merged is not None and (await _git(sandbox, "apply", "-", stdin=merged)).ok:
        return "three_way", merged
    malformed = re.search("corrupt|fragment|No valid|unrecognized|lacks", complaints[1])
    raise PatchError(complaints[1], reason="malformed" if malformed else "mismatch")


async def _merge(sandbox: Sandbox, diff: bytes) -> bytes | None:
    """What a three-way merge of `diff` changes; None when it can't be, or has conflicts."""
    result = await sandbox.run(
        ["sh", "-c", MERGE.replace("$0", shlex.join(GIT))],
        timeout=GIT_SECONDS,
        environment={**ISOLATED, "GIT_INDEX_FILE": f"/tmp/.patchgym-{secrets.token_hex(8)}"},
        stdin=diff,
        output_limit=PATCH_LIMIT,
    )
    if not result.ok or result.stdout.dropped:
        return None
    return (result.stdout.head + result.stdout.tail) or None


async def _changed(sandbox: Sandbox) -> frozenset[tuple[str, str]]:
    """Paths that differ from HEAD or are unknown to git, each with its state."""
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    result = await _git(sandbox, *words)
    if not result.ok or result.stdout.dropped:
        raise SandboxUsageError(f"no usable git checkout in the workdir: {_complaint(result)}")
    entries = result.stdout.head.decode("utf-8", "surrogateescape").split("\0")
    return frozenset((entry[3:], entry[:2]) for entry in entries if entry)


async def _git(sandbox: Sandbox, *words: str, stdin: bytes = b"") -> CommandResult:
    return await sandbox.run(
        (*GIT, *words),
        timeout=GIT_SECONDS,
        environment=ISOLATED,
        stdin=stdin,
        output_limit=PATCH_LIMIT,
    )


def _complaint(result: CommandResult) -> str:
    lines = [
        line.removeprefix("error: ").removeprefix("fatal: ")
        for line in result.stderr.text().splitlines()
        if line.startswith(("error: ", "fatal: "))
    ]
    return "; ".join(lines[:2])[:300] or "git gave no reason"
