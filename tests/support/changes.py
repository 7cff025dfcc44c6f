"""Changes for tests of reward components, from files before and after, without git."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from patchgym.datasets.task import Task
from patchgym.rewards.base import Verdict
from patchgym.rewards.scene import Change, ChangedFile, Conduct, Hunk, Line, Scene

Text = str | bytes | None

NO_CHANGE = Change(tree="base")


def changed_file(
    path: str, before: Text, after: Text, *, old_path: str | None = None
) -> ChangedFile:
    """One file; None: not there."""
    old, new = _bytes(before), _bytes(after)
    binary = b"\0" in (old or b"") or b"\0" in (new or b"")
    return ChangedFile(
        path=path,
        before=old,
        after=new,
        hunks=() if binary else _hunks(old or b"", new or b""),
        old_path=old_path,
        binary=binary,
    )


def change(before: Mapping[str, Text], after: Mapping[str, Text]) -> Change:
    """What leads from these files to those; None and not being named: not there."""
    paths = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    files = (changed_file(path, before.get(path), after.get(path)) for path in paths)
    return Change(tree="result", files=tuple(files))


def scene(
    made: Change,
    gold: Change = NO_CHANGE,
    *,
    test_files: tuple[str, ...] = ("tests/test_shop.py",),
    verdict: Verdict | None = None,
    conduct: Conduct | None = None,
) -> Scene:
    """A scene with a small task."""
    task = Task(
        id="shop",
        statement="Prices are wrong.",
        base_commit="0" * 40,
        gold_patch="diff --git a/shop.py b/shop.py\n",
        fail_to_pass=(f"{test_files[0]}::test_price",),
        test_files=test_files,
        files=dict.fromkeys(test_files, ""),
    )
    return Scene(task=task, diff=b"", change=made, gold=gold, verdict=verdict, conduct=conduct)


def _bytes(text: Text) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _hunks(before: bytes, after: bytes) -> tuple[Hunk, ...]:
    old, new = (_lines(data) for data in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        Hunk(removed=_numbered(old, a, b), added=_numbered(new, c, d))
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    )


def _lines(data: bytes) -> list[bytes]:
    """With their ends, so that a missing last one is a difference, as for git."""
    return data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n")


def _numbered(lines: list[bytes], start: int, end: int) -> tuple[Line, ...]:
    return tuple(
        Line(number=number, text=line.rstrip(b"\n").decode("utf-8", "surrogateescape"))
        for number, line in enumerate(lines[start:end], start + 1)
    )
