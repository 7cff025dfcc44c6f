"""Rows of SWE-smith: `patch` puts a bug in, so its reverse is the fix.

The commit that attempts start from is made here, as SWE-smith makes its branches: the repository at
the row's commit, the bug on top, the files of FAIL_TO_PASS taken away.
"""

from __future__ import annotations

import re
from pathlib import Path

from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .build import Parts, build, pytest_in
from .diffs import ended
from .fields import both_lists, need
from .git import break_commit
from .swebench import name_of

REPO = re.compile(
    r"(?:[\w.-]+/)?(?P<owner>[\w.-]+?)__(?P<name>[\w.-]+)\.(?P<commit>[0-9a-f]{7,40})"
)


def _task(row: Row, sources: Sources) -> Task:
    values = row.values
    fail_to_pass, pass_to_pass = both_lists(values)
    statement, bug = need(values, "problem_statement"), ended(need(values, "patch"))
    image, written = need(values, "image_name"), need(values, "repo")
    found = REPO.fullmatch(written)
    if found is None:
        raise Unusable(f"repo {written!r} is no OWNER__NAME.COMMIT: mend it")
    repo = f"{found['owner']}/{found['name']}"
    mirror, start = _start(written, repo, found["commit"], sources)
    hidden = sorted({test.partition("::")[0] for test in fail_to_pass if ".py::" in test})
    broken = break_commit(mirror, start, bug, hidden, sources.repositories)
    parts = Parts(
        name=need(values, "instance_id"),
        repo=repo,
        base_commit=broken.commit,
        statement=statement,
        gold_patch=broken.fix,
        test_patch=broken.tests,
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        repository=broken.repository,
        provenance={"source": "swe-smith", "commit": found["commit"]},
    )
    return build(parts, sources, lambda: pytest_in(image, parts.tests))


def _start(written: str, repo: str, commit: str, sources: Sources) -> tuple[Path, str]:
    """A mirror, and the name that the row's commit has in it: SWE-smith's own copy has but one."""
    if written in sources.mirrors:
        return sources.mirrors[written], "HEAD"
    if repo in sources.mirrors:
        return sources.mirrors[repo], commit
    raise Unusable(f"no mirror of {repo}: clone it, and give --mirror {repo}=PATH")


def _fits(values: Values) -> bool:
    keys = ("instance_id", "patch", "image_name", "FAIL_TO_PASS", "repo")
    repo = values.get("repo")
    return (
        all(key in values for key in keys) and isinstance(repo, str) and bool(REPO.fullmatch(repo))
    )


SWE_SMITH = Format(
    name="swe-smith", about="SWE-smith's made bugs", fits=_fits, name_of=name_of, task_of=_task
)
