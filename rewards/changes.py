"""Reads a diff on the host: what git makes of it, without a sandbox or a work tree.

    base commit ── index ──► apply (ladder) ──► tree ──► diff of the two trees ──► Change

Everything happens in a git folder of our own that borrows the repository's objects, so nobody's
configuration, attributes or hooks take part and the repository stays as it is. A diff counts as it
does in a sandbox: refused by the same rules, applied by the same ladder.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from patchgym.datasets.task import Task
from patchgym.sandbox import PatchError, PatchgymError, inspect_diff
from patchgym.sandbox.host_git import GitFailure, run_git
from patchgym.sandbox.patch import ISOLATED, LADDER, Rung

from .change_files import read_files
from .scene import Change

GIT_SECONDS = 20.0  # for one git command on a diff
BINARY_LIMIT = 64 << 20  # bytes that all binary hunks of a diff may unpack to
_CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
\tquotePath = false
[apply]
\twhitespace = nowarn
\tignoreWhitespace = no
"""
_BINARY = re.compile(rb"(?m)^(literal|delta) (\d{1,18})\r?$")
_HEAD = 20  # bytes that hold both sizes at the head of a delta
_REFUSED = re.compile("symbolic link|invalid path|outside")
_COMMIT = "160000"  # mode of a submodule, whose commit is elsewhere
_KEPT = 16  # base commits whose index is kept in memory


def read_change(task: Task, diff: bytes, folder: Path) -> Change:
    """What `diff` makes of the task's base commit in the git repository `folder`. Blocking.

    A diff that is refused or does not apply is a `Change` with a `problem`, whatever it holds.
    Raises PatchgymError when the repository can't be read or there is no git.
    """
    ground = _ground(str(folder), task.base_commit)
    if not diff.strip():
        return Change(tree=ground.tree)
    if not diff.endswith(b"\n"):
        diff += b"\n"  # cut off by whoever printed it; git calls that corrupt
    try:
        with tempfile.TemporaryDirectory(prefix="patchgym-change-") as aside:
            return _read(_Git(Path(aside), ground), diff)
    except PatchError as problem:
        return Change(tree=hashlib.sha256(diff).hexdigest(), problem=str(problem))
    except OSError as error:
        raise PatchgymError(f"no diff can be read in {tempfile.gettempdir()}: {error}") from error


def _read(git: _Git, diff: bytes) -> Change:
    paths = _apply(git, diff)
    try:
        tree = git.run("write-tree", "--missing-ok").decode().strip()
        files = read_files(git.run, git.ground.tree, tree)
    except GitFailure as failure:  # such as a diff that takes git too long
        _check_ours(failure)
        _check_readable(git, paths)
        raise PatchError(str(failure), reason="malformed") from failure
    if unasked := files.touched - paths:
        raise PatchError(f"changed {min(unasked)}, unasked", reason="wrong_paths")
    return Change(tree=tree, files=files.files, cut=files.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """A base commit, ready to be changed."""

    tree: str
    objects: str
    """The repository's objects folder."""
    index: bytes
    """An index of the whole tree."""


@lru_cache(maxsize=_KEPT)
def _ground(folder: str, commit: str) -> _Ground:
    """Raises GitFailure when the commit is not there."""
    told = run_git(folder, "rev-parse", "--git-path", "objects", f"{commit}^{{tree}}")
    place, tree = told.decode("utf-8", "surrogateescape").splitlines()
    objects = str((Path(folder) / place).resolve())
    with tempfile.TemporaryDirectory(prefix="patchgym-change-") as aside:
        git = _Git(Path(aside), _Ground(tree=tree, objects=objects, index=b""))
        git.run("read-tree", tree)
        return _Ground(tree=tree, objects=objects, index=(git.folder / "index").read_bytes())


class _Git:
    """Git in a bare folder of its own, on top of the repository's objects."""

    def __init__(self, folder: Path, ground: _Ground) -> None:
        self.folder = folder
        self.ground = ground
        (folder / "refs").mkdir()
        (folder / "objects" / "info").mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(_CONFIG)
        borrowed = folder / "objects" / "info" / "alternates"
        borrowed.write_text(f"{ground.objects}\n", errors="surrogateescape")
        self.restart()

    def restart(self) -> None:
        """Back to the base commit."""
        if self.ground.index:
            (self.folder / "index").write_bytes(self.ground.index)

    def run(self, *words: str, stdin: bytes = b"") -> bytes:
        """What a git command prints. Raises GitFailure."""
        variables: Mapping[str, str] = {**ISOLATED, "GIT_DIR": str(self.folder)}
        return run_git(self.folder, *words, variables=variables, stdin=stdin, timeout=GIT_SECONDS)

    def tries(self, *words: str, stdin: bytes) -> str:
        """Git's complaint; empty when it has none."""
        try:
            self.run(*words, stdin=stdin)
        except GitFailure as failure:
            _check_ours(failure)
            told = dict.fromkeys([str(failure), failure.last])
            plain = [line.removeprefix("error: ").removeprefix("fatal: ") for line in told]
            return "; ".join(plain)[:300] or "git gave no reason"
        return ""


def _apply(git: _Git, diff: bytes) -> frozenset[str]:
    """Put the diff into the index; the paths that it names. Raises PatchError."""
    paths = _named(diff)
    _check_binaries(diff)
    complaints: dict[Rung, str] = {}
    for rung, options in LADDER.items():
        if rung == "p0":
            paths = _named(diff, strip=0)
            if any(path.startswith(("a/", "b/")) for path in paths):
                continue
        complaint = git.tries("apply", "--cached", *options, "-", stdin=diff)
        if not complaint:
            return paths
        if _REFUSED.search(complaint):
            raise PatchError(complaint, reason="refused")
        complaints[rung] = complaint
    _check_readable(git, _named(diff))
    if not git.tries("apply", "--cached", "--recount", "--reverse", "--check", "-", stdin=diff):
        raise PatchError("the diff is in the tree already", reason="already_applied")
    if not git.tries("apply", "--cached", "--3way", "-", stdin=diff):
        if not git.run("ls-files", "--unmerged"):
            return _named(diff)
    raise PatchError(complaints["recount"], reason="mismatch")


def _check_readable(git: _Git, paths: frozenset[str]) -> None:
    """Raise GitFailure when the repository is broken, rather than the diff wrong."""
    git.restart()
    wanted = ""
    for entry in git.run("ls-files", "-s", "-z").decode("utf-8", "surrogateescape").split("\0"):
        head, _, path = entry.partition("\t")
        if path and path in paths and not head.startswith(_COMMIT):
            wanted += f"{head.split()[1]}\n"
    known = git.run("cat-file", "--batch-check", stdin=wanted.encode()).splitlines()
    if gone := next((line for line in known if line.endswith(b" missing")), None):
        raise GitFailure([f"object {gone.decode()} in the repository"])
    git.run("cat-file", "--batch", stdin=wanted.encode())


def _check_ours(failure: GitFailure) -> None:
    """Raise a failure that no diff can be blamed for."""
    if failure.last.endswith("No space left on device"):
        raise failure


def _named(diff: bytes, *, strip: int = 1) -> frozenset[str]:
    """The paths that the diff names. Raises PatchError."""
    try:
        return inspect_diff(diff, strip=strip)
    except ValueError as error:  # a line number of thousands of digits
        raise PatchError(f"corrupt patch: {error}", reason="malformed") from error


def _check_binaries(diff: bytes) -> None:
    """Refuse binary hunks that would fill the memory: a few bytes can unpack to gigabytes."""
    if b"\nGIT binary patch" not in diff:
        return
    total = 0
    for hunk in _BINARY.finditer(diff):
        total += int(hunk[2])
        if hunk[1] == b"delta":
            total += _delta_result(diff, hunk.end() + 1)
    if total > BINARY_LIMIT:
        raise PatchError(f"its binary files are over {BINARY_LIMIT >> 20} MiB", reason="too_large")


def _delta_result(diff: bytes, at: int) -> int:
    """How many bytes a delta makes, whose packed lines begin at `at`; 0 where it is no delta."""
    unpacker, head = zlib.decompressobj(), b""
    while len(head) < _HEAD and (end := diff.find(b"\n", at)) > at:
        try:
            packed = base64.b85decode(diff[at + 1 : end].rstrip(b"\r"))
            head += unpacker.decompress(packed, _HEAD)
        except (ValueError, zlib.error):
            return 0
        at = end + 1
    sizes = re.match(rb"(?s)[\x80-\xff]*[\x00-\x7f]([\x80-\xff]*[\x00-\x7f])", head)
    digits = sizes[1] if sizes else b""
    return sum((digit & 0x7F) << (7 * place) for place, digit in enumerate(digits))
