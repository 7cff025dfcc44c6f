"""Whole files that a change should not have touched or brought."""

from __future__ import annotations

from collections.abc import Iterator

from patchgym.rewards.scene import Change, ChangedFile

from .base import Known, Needless, needless
from .places import generated, is_library, is_manifest, stray

_MOST = 20  # lines of a file that nothing loads, as far as they count


def file_findings(change: Change, known: Known) -> Iterator[Needless]:
    """Findings about files as such."""
    manifests = {file.path.rpartition("/")[0] for file in change.files if is_manifest(file.path)}
    for file in change.files:
        reason = generated(file.path)
        if reason == "a lock file" and file.path.rpartition("/")[0] in manifests:
            reason = ""
        if reason and file.after is not None:
            yield needless("generated", file, reason)
        elif reason := _stray(file, known):
            yield needless("stray", file, reason)
        else:
            yield from _unexercised(file, known)
        yield from _only_moved(file)


def _stray(file: ChangedFile, known: Known) -> str:
    if file.before is not None or file.after is None:
        return ""
    return stray(file.path, known.test_files, binary=file.binary)


def _unexercised(file: ChangedFile, known: Known) -> Iterator[Needless]:
    if known.loaded is None or file.path in known.loaded:
        return
    if file.after is None or not file.hunks or not file.path.endswith(".py"):
        return
    if is_library(file.path, known.test_files):
        count = min(_MOST, max(file.added, file.removed))
        yield needless("unexercised", file, "no test loads this file", None, count)


def _only_moved(file: ChangedFile) -> Iterator[Needless]:
    if file.before is None or file.before != file.after or file.hunks:
        return
    if file.binary and not file.before:  # contents that nobody read
        return
    if file.old_path is None:
        yield needless("modes", file, "only its mode changed")
    elif file.old_path != file.path:
        yield needless("file_renames", file, f"{file.old_path} under another name")
