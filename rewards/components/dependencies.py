"""What a diff newly depends on: packages that its manifests name and named nowhere before.

Manifests are read, never run, and as untrusted: one that can't be read is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patchgym.rewards.scene import Change, ChangedFile

from .manifests import Unreadable, reader_of

SIZE_LIMIT = 256 << 10  # bytes of one manifest
NAMES_LIMIT = 2000  # of one manifest
REQUIREMENT_LIMIT = 1000  # characters
WORD = re.compile(r"@?[A-Za-z0-9][\w./-]{0,213}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A package that a project asks for."""

    ecosystem: str
    """`python` or `npm`; conda's packages count as Python's."""
    name: str
    """In its normal form."""
    pinned: str = ""
    """The only version that it may have, if it says so."""
    path: str = ""
    """The manifest."""
    line: int | None = None
    """From 1, the first added one that names it; None when none does so literally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDependencies:
    """What a diff newly depends on."""

    found: tuple[Dependency, ...] = ()
    """By path, then name."""
    unread: tuple[str, ...] = ()
    """Manifests that could not be read, each with the reason."""


def new_dependencies(change: Change, gold: Change) -> NewDependencies:
    """Packages that `change` newly names, less those that `gold` newly names too.

    A package counts once, in the first manifest by path. One that another changed manifest named
    before is not new, so that moving requirements elsewhere is free; nor is another version.
    """
    unread: list[str] = []
    named: dict[tuple[str, str], Dependency] = {}
    for file in change.files:
        for each in _read(file, file.after, unread):
            named.setdefault((each.ecosystem, each.name), each)
    known = _names(change, "before", unread) | (
        _names(gold, "after", []) - _names(gold, "before", [])
    )
    return NewDependencies(
        found=tuple(
            each
            for key, each in sorted(named.items(), key=lambda item: (item[1].path, item[0]))
            if key not in known
        ),
        unread=tuple(dict.fromkeys(unread)),
    )


def _names(change: Change, state: str, unread: list[str]) -> set[tuple[str, str]]:
    return {
        (each.ecosystem, each.name)
        for file in change.files
        for each in _read(file, file.before if state == "before" else file.after, unread)
    }


def _read(file: ChangedFile, content: bytes | None, unread: list[str]) -> list[Dependency]:
    """What a state of a file names; why it can't be read goes to `unread`."""
    reader = reader_of(file.path)
    if reader is None or content is None:
        return []
    ecosystem = "npm" if file.path.endswith(".json") else "python"
    try:
        if len(content) > SIZE_LIMIT:
            raise Unreadable(f"over {SIZE_LIMIT >> 10} KiB")
        text = content.decode("utf-8", "replace").removeprefix("\ufeff")
        requirements = list(islice(reader(text), NAMES_LIMIT + 1))
        if len(requirements) > NAMES_LIMIT:
            raise Unreadable(f"more than {NAMES_LIMIT} requirements")
    except Unreadable as problem:
        unread.append(f"{file.path}: {problem}")
        return []
    parsed = (_parsed(each, ecosystem) for each in requirements)
    found = dict(each for each in parsed if each is not None)
    lines = _lines(file, found, ecosystem)
    return [
        Dependency(
            ecosystem=ecosystem, name=name, pinned=pinned, path=file.path, line=lines.get(name)
        )
        for name, pinned in found.items()
    ]


def _parsed(requirement: str, ecosystem: str) -> tuple[str, str] | None:
    """Name and pinned version; None for what names no package."""
    if ecosystem == "npm":
        return requirement.lower()[:REQUIREMENT_LIMIT], ""
    requirement = requirement.strip()[:REQUIREMENT_LIMIT]
    try:
        told = Requirement(requirement)
    except (InvalidRequirement, RecursionError):
        loose = re.match(r"[A-Za-z0-9][\w.-]{0,213}", requirement)
        return (canonicalize_name(loose[0]), "") if loose else None
    pins = [each.version for each in told.specifier if each.operator in ("==", "===")]
    pinned = pins[0] if len(pins) == 1 and "*" not in pins[0] else ""
    return canonicalize_name(told.name), pinned


def _lines(file: ChangedFile, names: Mapping[str, str], ecosystem: str) -> dict[str, int]:
    """The first added line that names each, comments aside."""
    found: dict[str, int] = {}
    for line in (line for hunk in file.hunks for line in hunk.added):
        if not line.text.lstrip().startswith("#"):
            for name in _words(line.text, ecosystem):
                if name in names:
                    found.setdefault(name, line.number)
    return found


def _words(line: str, ecosystem: str) -> Iterator[str]:
    for word in WORD.findall(line):
        yield word.lower() if ecosystem == "npm" else canonicalize_name(word)
