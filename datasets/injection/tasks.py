"""From a mutant that fits to a task: the commit with the bug, the fix, the report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from patchgym.datasets.environment import Environment
from patchgym.datasets.injection.source import Source
from patchgym.datasets.leaks import quoted_lines
from patchgym.datasets.task import Task

from .choose import Mutant
from .coverage import Survey
from .difficulty import difficulty
from .origin import Origin
from .statement import report_bug
from .trials import Tried

GENERATOR = "patchgym.datasets.injection 1"
"""The number is raised when the same seed makes other tasks than before."""


def task_of(
    mutant: Mutant,
    tried: Tried,
    *,
    origin: Origin,
    environment: Environment,
    survey: Survey,
    sources: Mapping[str, Source],
    seed: int,
) -> Task:
    """The task, and its commit in the origin's repository. Blocking."""
    failing = tuple(sorted(tried.failing))
    commit = origin.bug(mutant.files, mutant.key)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", origin.name).strip("-._") or "code"
    hard = difficulty(
        mutant, failing=len(failing), reach=min(survey.reach[test] for test in failing)
    )
    told = list(_statements(mutant, tried, plain_name(name), sources))
    task = Task(
        id=f"{name}/{mutant.kind}-{mutant.key[:8]}",
        statement=told[0],
        base_commit=commit,
        gold_patch=origin.fix(commit),
        fail_to_pass=failing,
        pass_to_pass=tuple(sorted(tried.passing)),
        test_files=_files((*failing, *tried.passing)),
        repository=str(origin.repository.resolve()),
        # the plain one is that of any pool
        environment=None if environment == Environment() else environment,
        difficulty=hard,
        provenance=_provenance(mutant, origin, seed),
    )
    return replace(task, statement=told[1]) if quoted_lines(task) else task


def plain_name(name: str) -> str:
    """A name without its version: `toolz` for `toolz-1.2.0`."""
    return re.sub(r"-\d[\w.+]*$", "", name)


def _statements(
    mutant: Mutant, tried: Tried, name: str, sources: Mapping[str, Source]
) -> Iterator[str]:
    """The report, and the same without details."""
    lines = (
        line.strip()
        for path, data in mutant.files.items()
        for text in (data, sources[path].data)
        for line in text.decode("utf-8").splitlines()
    )
    code = frozenset(line for line in lines if line)
    for details in (True, False):
        yield report_bug(
            name, tried.failing, code=code, choice=int(mutant.key[:4], 16), details=details
        )


def _files(tests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({test.partition("::")[0] for test in tests}))


def _provenance(mutant: Mutant, origin: Origin, seed: int) -> dict[str, str]:
    places = mutant.places
    return {
        "generator": GENERATOR,
        "source": origin.name,
        "tree": origin.tree,
        "seed": str(seed),
        "kinds": "+".join(sorted(place.kind for place in places)),
        "path": "+".join(sorted({place.path for place in places})),
        "function": "+".join(dict.fromkeys(place.function for place in places)),
        "difficulty": "estimated by patchgym.datasets.injection",
    }
