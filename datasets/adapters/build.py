"""A task out of a row's parts: repository, environment, trusted files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import OFFICIAL_PATH, OFFICIAL_WORKDIR, find_recipe
from patchgym.datasets.swebench import kept_paths
from patchgym.datasets.task import Task
from patchgym.sandbox.errors import PatchError, SandboxUsageError
from patchgym.sandbox.testing.launch import with_probe
from patchgym.sandbox.testing.logs import check

from .base import Sources, Unusable
from .diffs import ended

NODE_ID = re.compile(r"[^\s:]+\.py::\S.*", re.DOTALL)
TIMEOUT = 1800.0  # seconds for a run in an image whose makers named no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a row says."""

    name: str
    repo: str
    base_commit: str
    statement: str
    gold_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    test_patch: str = ""
    test_files: tuple[str, ...] = ()
    """Besides those that test_patch touches, and those of the tests."""
    version: str | None = None
    repository: Path | None = None
    """None: the mirror of `repo`."""
    split: str = "train"
    difficulty: float | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def tests(self) -> tuple[str, ...]:
        """All of them."""
        return self.fail_to_pass + self.pass_to_pass


def build(parts: Parts, sources: Sources, own: Callable[[], Environment] | None = None) -> Task:
    """The task. Raises Unusable, or TaskError when the parts contradict each other.

    `own` makes the environment that comes with the row, an image of its makers, or raises Unusable;
    it is asked where no recipe fits.
    """
    environment, image = _place(parts, sources, own)
    repository = parts.repository or mirror_of(parts.repo, sources)
    files = {*parts.test_files, *_touched(parts.test_patch)}
    if not environment.test_command:
        files |= {test.partition("::")[0] for test in parts.tests if "::" in test}
    return Task(
        id=parts.name,
        statement=parts.statement,
        base_commit=parts.base_commit,
        gold_patch=ended(parts.gold_patch),
        fail_to_pass=parts.fail_to_pass,
        pass_to_pass=parts.pass_to_pass,
        test_files=tuple(sorted(files)),
        test_patch=ended(parts.test_patch),
        repository=str(repository.resolve()),
        image=image,
        environment=environment,
        repo=parts.repo,
        version=parts.version,
        split=parts.split,
        difficulty=parts.difficulty,
        provenance=parts.provenance,
    )


def mirror_of(repo: str, sources: Sources) -> Path:
    """The local repository; Unusable says how to give one."""
    if repo not in sources.mirrors:
        raise Unusable(f"no mirror of {repo}: clone it, and give --mirror {repo}=PATH")
    return sources.mirrors[repo]


def pytest_in(
    image: str, tests: Sequence[str], *, command: str = "", workdir: str = OFFICIAL_WORKDIR
) -> Environment:
    """Pytest in a ready image: by the command of its makers, with the tests' files; else by ids.

    Ids that a log's parser cut at a blank have to be read from a log again. Raises Unusable.
    """
    if not all(NODE_ID.fullmatch(test) for test in tests):
        raise Unusable("its test ids are not pytest's: write a recipe")
    place = Environment(
        base=image, variables={"PATH": OFFICIAL_PATH}, workdir=workdir, timeout=TIMEOUT
    )
    if _cut(tests):
        return log_in(place, f"{command or 'pytest -rA'} {{test_files}}", "parse_log_pytest")
    if not command:
        return place
    return commanded(place, f"{command} {{test_files}}")


def commanded(place: Environment, command: str, report: str = "pytest") -> Environment:
    """With a test command that can be used; raises Unusable."""
    try:
        changed = replace(place, test_command=command, report=report)
        _ = changed.command
        if report == "pytest":
            with_probe(command)
    except SandboxUsageError as error:
        raise Unusable(f"{str(error).splitlines()[0]}; or write a recipe") from error
    return changed


def log_in(place: Environment, command: str, parser: str) -> Environment:
    """Tests that are read from their log; raises Unusable when that parser is not here."""
    try:
        check(parser)
    except SandboxUsageError as error:
        raise Unusable(str(error)) from error
    return commanded(place, command, f"log:{parser}")


def _cut(tests: Sequence[str]) -> bool:
    """Whether ids end at a blank within their parameters."""
    return any(test.count("[") > test.count("]") for test in tests) and not any(
        " " in test for test in tests
    )


def _place(
    parts: Parts, sources: Sources, own: Callable[[], Environment] | None
) -> tuple[Environment, str | None]:
    """A recipe's environment where there is one: it was written for this machine."""
    recipe = find_recipe(sources.recipes, parts.repo, parts.version)
    if recipe is not None:
        return recipe.environment, recipe.image_of(parts.name)
    missing = f"no recipe for {parts.repo} {parts.version or '(no version)'}"
    if own is None:
        raise Unusable(f"{missing}: write one, see --recipes")
    try:
        environment = own()
    except Unusable as reason:
        raise Unusable(f"{reason} ({missing})") from reason
    # what has to be done to an image first is done to an environment's base alone
    return environment, None if environment.install else environment.base


def _touched(diff: str) -> tuple[str, ...]:
    if not diff.strip():
        return ()
    try:
        found = kept_paths(ended(diff).encode())
    except PatchError as error:
        raise Unusable(f"test_patch is refused: {error}") from error
    if not found:
        raise Unusable("test_patch is no git diff that leaves a file: paste the whole of it")
    return found
