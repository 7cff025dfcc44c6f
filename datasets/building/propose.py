"""Proposals for a tree, whatever its language. Pure: no disk, no network."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from .manifests import read_project
from .other_languages import propose_others
from .proposal import Proposal
from .python import propose_python


def propose(
    files: Mapping[str, bytes],
    *,
    date: datetime,
    subproject: str = "",
    dates: bool = True,
    release: str = "",
) -> tuple[Proposal, ...]:
    """Environments for a tree, the best first; none when no manifest is known here.

    `files` has every path of the tree; content matters where `is_manifest` says so, and may be
    empty elsewhere. `date` (with a time zone) is that up to which packages may have been uploaded,
    see `sharing_date`; `dates` says whether the index knows such dates. `subproject` is a folder
    of the tree. `release` is the version to go by where no file has one.
    """
    project = read_project(files, subproject)
    python = (
        propose_python(project, date=date, dates=dates, release=release, subproject=subproject)
        if project is not None
        else ()
    )
    others = propose_others(files, subproject)
    if project is not None and others and not project.name and not project.test_folders:
        return (*others, *python)  # requirements of its documentation, as a rule
    return python or others
