"""Lays out what linters run on: the changed files in two states, never the work tree itself.

    FOLDER/files/before   the changed files at the base commit, under their new names
    FOLDER/files/after    the changed files with the diff
    FOLDER/project/...    likewise, but everything that is in the repository
    FOLDER/bare/...       likewise, the changed files and nothing else, as they are
    FOLDER/tools/NAME     a linter's own files

But in `bare`, files that configure a linter are those of the base commit. `files` also has the
outline of the repository (folders, empty modules), by which linters tell its own packages from
others.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from .changes import ChangedFile

OUTLINE_LIMIT = 2000  # entries
COMMENT = re.compile(rb"#|//|/\*")
DIRECTIVE = re.compile(
    rb"(?:fmt|yapf|isort|black)\s*:\s*(?:off|skip|disable|split)|\bnolint\b"
    rb"|(?:eslint|tslint|biome|prettier|oxlint)-(?:disable|ignore)|@ts-(?:ignore|nocheck)"
)
"""In comments: silences a tool which can't be told to ignore it."""


class Tree:
    """Files and folders that can stand beside each other."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()

    def put(self, path: str, content: bytes) -> bool:
        """Unless a file is where a folder is, or the other way round; whether it was put there."""
        above = list(ancestors(path))
        if path in self.folders or any(folder in self.files for folder in above):
            return False
        self.files[path] = content
        self.folders.update(above)
        return True

    def outline(self, folder: str) -> None:
        """A folder, unless a file is there."""
        above = [folder, *ancestors(folder)]
        if not any(each in self.files for each in above):
            self.folders.update(above)


def trees(
    files: Sequence[ChangedFile], configuration: Mapping[str, bytes], known: Collection[str]
) -> dict[str, Tree]:
    """The trees `before` and `after`; `known` are the paths of the base commit."""
    before, after = Tree(), Tree()
    for file in _last_gone(file for file in files if not file.steers):
        if file.before is not None:
            before.put(file.path, file.before)
        if file.after is not None:
            after.put(file.path, disarmed(file))
    for tree in (before, after):
        for path, content in configuration.items():
            tree.put(path, content)
        _outline(tree, known, [file.path for file in files])
    return {"before": before, "after": after}


def bare_trees(files: Sequence[ChangedFile]) -> dict[str, Tree]:
    """The trees `before` and `after` with nothing but these files, as they are."""
    before, after = Tree(), Tree()
    for file in _last_gone(files):
        if file.before is not None:
            before.put(file.path, file.before)
        if file.after is not None:
            after.put(file.path, file.after)
    return {"before": before, "after": after}


def _last_gone(files: Iterable[ChangedFile]) -> list[ChangedFile]:
    """With those that are gone at the end: what took their place as a folder goes before them."""
    return sorted(files, key=lambda file: file.after is None)


def disarmed(file: ChangedFile) -> bytes:
    """The new state, with the directives on lines that the diff brought made void.

    A line that was in the old state as well, wherever it was, keeps its own.
    """
    assert file.after is not None
    if not DIRECTIVE.search(file.after):
        return file.after
    lines = file.after.split(b"\n")
    left = Counter(line.strip() for line in (file.before or b"").split(b"\n"))
    left.subtract(line.strip() for number, line in enumerate(lines, 1) if not _new(file, number))
    for number, line in enumerate(lines, 1):
        if _new(file, number) and DIRECTIVE.search(line):
            left[line.strip()] -= 1
            if left[line.strip()] < 0:
                lines[number - 1] = _voided(line)
    return b"\n".join(lines)


def _voided(line: bytes) -> bytes:
    """With as many bytes as before, so that columns stay."""
    comment = COMMENT.search(line)
    start = comment.start() if comment else len(line)
    return line[:start] + DIRECTIVE.sub(lambda found: b"_" * len(found[0]), line[start:])


def _new(file: ChangedFile, line: int) -> bool:
    return file.touched(line, line)


def ancestors(path: str) -> Iterator[str]:
    """The folders above a path."""
    while path := path.rpartition("/")[0]:
        yield path


def near(paths: Iterable[str], changed: Iterable[str], names: Collection[str]) -> list[str]:
    """Those called like one of `names` in a folder above something that changed, or at the root."""
    above = {"", *(folder for path in changed for folder in ancestors(path))}
    return [
        path
        for path in paths
        if path.rpartition("/")[2] in names and path.rpartition("/")[0] in above
    ]


def _outline(tree: Tree, known: Collection[str], changed: Sequence[str]) -> None:
    folders = {folder for path in known if path.endswith(".py") for folder in ancestors(path)}
    for folder in sorted(folders, key=lambda folder: (folder.count("/"), folder))[:OUTLINE_LIMIT]:
        tree.outline(folder)
    modules = [path for path in known if re.fullmatch(r"(src/)?[^/]+\.py", path)]
    modules += near(known, changed, ("__init__.py",))
    for path in modules[:OUTLINE_LIMIT]:
        if path not in tree.files:
            tree.put(path, b"")


def packed(contents: Mapping[str, Tree]) -> bytes:
    """A tar archive of trees, each in the folder that it is named by."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8"
    ) as archive:
        for name, tree in contents.items():
            for folder in ("", *sorted(tree.folders)):
                archive.addfile(_member(f"{name}/{folder}", tarfile.DIRTYPE, 0o755))
            for path, content in sorted(tree.files.items()):
                member = _member(f"{name}/{path}", tarfile.REGTYPE, 0o644)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.rstrip("/"))
    member.type, member.mode = kind, mode
    return member
