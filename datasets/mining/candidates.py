"""From a commit to a candidate: its two patches and its words, or why it is none.

Everything here reads the view of the repository, and blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .errors import MissingObjects
from .history import Changed, Commit, changes, contents, diff, merged_messages
from .split import HEAD, MAX_BYTES, SPARE, Dropped, Layout, Split, split
from .statement import issue_numbers
from .view import View

SHORT_ID = 12  # hex digits of a commit in a task's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A commit that changes both source and tests."""

    commit: Commit
    name: str
    """owner/name of the repository, or two folders that stand for it."""
    repo: str | None
    """The same where it is known to be the repository's."""
    repository: Path
    """Git folder with its objects, safe to read: a view of ours."""
    subproject: str
    """Folder of the subproject; empty is the whole repository."""
    split: Split
    golds: tuple[str, ...]
    """The gold patch; then, where there is such, one with generated files besides."""
    test_patch: str
    messages: tuple[str, ...]
    """The commit's own message, then those of what it merged."""
    issues: Mapping[str, str] = field(default_factory=dict)
    """Text of the issues that those name, by number."""

    @property
    def base(self) -> str:
        """Full id of the commit that the task starts from."""
        return self.commit.parents[0]

    @property
    def task_id(self) -> str:
        """`owner__name-<12 hex digits>`, and behind that a subproject's folder."""
        folder = re.sub(r"[^A-Za-z0-9._-]+", "-", self.subproject).strip("-._")
        suffix = f"-{folder}" if folder else ""
        return f"{self.name.replace('/', '__')}-{self.commit.id[:SHORT_ID]}{suffix}"


def candidate_of(
    view: View, commit: Commit, layout: Layout, issues: Mapping[str, str]
) -> Candidate | Dropped:
    """The candidate that a commit makes, or why it makes none."""
    if not commit.parents:
        shallow = commit.id in view.shallow
        return Dropped(reason="shallow" if shallow else "root")
    try:
        return _candidate(view, commit, layout, issues)
    except MissingObjects as error:
        return Dropped(reason="missing-objects", detail=" ".join(str(error).split())[-200:])


def _candidate(
    view: View, commit: Commit, layout: Layout, issues: Mapping[str, str]
) -> Candidate | Dropped:
    changed = changes(view, commit)
    if not changed:
        return Dropped(reason="no-changes")
    by_name = split(changed, {}, layout)  # most commits fall here, without a look at content
    if isinstance(by_name, Dropped):
        return by_name
    data = contents(view, _blobs(changed))
    parts = split(changed, _heads(changed, data), layout)
    if isinstance(parts, Dropped):
        return parts
    odd = _not_text(changed, data)
    chosen = dict.fromkeys((parts.gold, parts.fuller))
    patches = [_patch(view, commit, paths, odd) for paths in (*chosen, parts.tests)]
    if max(map(len, patches)) > MAX_BYTES:
        return Dropped(reason="too-large", detail=f"{max(map(len, patches)) >> 10} KiB of patch")
    *golds, test_patch = patches
    messages = (commit.message, *merged_messages(view, commit))
    numbers = issue_numbers(messages)
    return Candidate(
        commit=commit,
        name=view.name,
        repo=view.name if view.named else None,
        repository=view.folder,
        subproject=layout.subproject,
        split=parts,
        golds=tuple(golds),
        test_patch=test_patch,
        messages=messages,
        issues={number: issues[number] for number in numbers if number in issues},
    )


def _patch(view: View, commit: Commit, paths: Sequence[str], odd: Iterable[str]) -> str:
    try:
        return diff(view, commit, paths, odd).decode()
    except UnicodeDecodeError:  # in a file that was too big to be looked at
        return diff(view, commit, paths, paths).decode()


def _blobs(changed: Sequence[Changed]) -> Iterable[str]:
    return (blob for each in changed if not each.submodule for blob in each.blobs)


def _heads(changed: Sequence[Changed], data: Mapping[str, bytes]) -> dict[str, bytes]:
    """The first bytes of each path: as it became, or as it was where it went."""
    return {
        each.path: (data.get(each.blobs[1]) or data.get(each.blobs[0], b""))[:HEAD]
        for each in changed
    }


def _not_text(changed: Sequence[Changed], data: Mapping[str, bytes]) -> frozenset[str]:
    """Paths whose content a task, which is text, can only hold as a binary patch."""
    return frozenset(
        each.path
        for each in changed
        if not all(_is_utf8(data.get(blob, b"")) for blob in each.blobs)
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def left_out(parts: Split, gold_patch: str) -> str:
    """What the task does not hold of its commit, in one line."""
    held = gold_patch.count("\ndiff --git ") + 1 > len(parts.gold)  # the spare ones are in it
    names = [
        f"{path} ({kind})"
        for path, kind in sorted(parts.left_out.items())
        if not (held and kind in SPARE)
    ]
    return _listed(names, limit=20)


def _listed(names: Iterable[str], limit: int) -> str:
    shown = list(names)
    more = f" and {len(shown) - limit} more" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more
