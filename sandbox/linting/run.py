"""Runs linters side by side on both states of what a diff changed, and adds up what they say.

                        ┌── work: linter on before and after, read, compare ──┐
changes ──── trees ─────┼── work: another linter ─────────────────────────────┼──── LintReport
 (git)   (one upload)   └── work: a third ────────────────────────────────────┘
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import anyio
import anyio.to_thread

from patchgym.sandbox.container import Sandbox
from patchgym.sandbox.errors import SandboxError, SandboxUsageError

from .bandit import Bandit
from .changes import Changes, Repository
from .formatters import Formatter
from .linter import Choice, Linter
from .matching import rank
from .report import Finding, LintReport, Skipped
from .ruff import Ruff
from .secret_scan import DetectSecrets
from .semgrep import Semgrep
from .trees import Tree, bare_trees, near, packed, trees
from .work import Ground, Work

TIDY_SECONDS = 30.0
PROJECTS = """
$GIT checkout-index -a -f --prefix={folder}/project/after/ &&
GIT_INDEX_FILE={folder}/base-index && export GIT_INDEX_FILE && $GIT read-tree HEAD &&
$GIT checkout-index -a -f --prefix={folder}/project/before/
"""


def default_linters() -> tuple[Linter, ...]:
    """All that the image of `ensure_lint_image` has."""
    return Ruff(), Formatter(), Bandit(), Semgrep(), DetectSecrets()


async def lint(
    sandbox: Sandbox,
    linters: Sequence[Linter],
    *,
    timeout: float,
    paths: Iterable[str] | None = None,
) -> LintReport:
    """What `linters` newly find in a checkout to which a diff was applied.

    `paths` are those that the diff names, `AppliedPatch.paths`; without them it is all that git
    sees as changed, from which a diff can hide new files by a .gitignore. `timeout` in seconds,
    for everything; what did not end by then is `skipped`. The work tree is left as it is. Needs
    git, sh, stat, xargs and tar in the image. Raises SandboxUsageError when there is no checkout
    or two linters have one name, SandboxLost; never because of what a linter does.
    """
    names = [linter.tool.name for linter in linters]
    if len(set(names)) < len(names) or not all(re.fullmatch(r"\w[\w.-]*", name) for name in names):
        raise SandboxUsageError(f"linters need plain names of their own, not {names!r}")
    deadline = anyio.current_time() + timeout
    folder = f"/tmp/patchgym-lint-{secrets.token_hex(8)}"
    ground = Ground(no_files=f"no time was left of {timeout:g} s")
    with anyio.move_on_at(deadline):
        ground = await _lay_out(sandbox, folder, linters, paths)
    if ground.no_files is None:
        reports = await _side_by_side(sandbox, ground, deadline)
    else:
        reason = f"the files could not be laid out: {ground.no_files}"
        unseen = tuple(Skipped(tool=name, path=None, reason=reason) for name in names)
        reports = [LintReport(skipped=unseen)]
    await sandbox.run(["rm", "-rf", folder], timeout=TIDY_SECONDS, cwd="/")
    return _merged([_of_changes(ground.changes), *reports])


def _of_changes(changes: Changes) -> LintReport:
    """What no linter has a part in."""
    skipped = sorted(changes.skipped.items(), key=lambda item: item[0] or "")
    return LintReport(
        files=tuple(file.path for file in changes.files),
        skipped=tuple(Skipped(tool=None, path=path, reason=reason) for path, reason in skipped),
    )


def _merged(reports: Sequence[LintReport]) -> LintReport:
    """One of all."""
    return LintReport(
        new=_quiet(each for report in reports for each in report.new),
        fixed=_quiet(each for report in reports for each in report.fixed),
        formatting=tuple(each for report in reports for each in report.formatting),
        unformatted_before=tuple(
            sorted({path for report in reports for path in report.unformatted_before})
        ),
        skipped=tuple(each for report in reports for each in report.skipped),
        files=tuple(sorted({path for report in reports for path in report.files})),
        versions={name: told for report in reports for name, told in report.versions.items()},
        seconds={name: took for report in reports for name, took in report.seconds.items()},
        notes=tuple(note for report in reports for note in report.notes),
    )


def _quiet(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted; where one is about a secret, no other quotes the line."""
    ordered = sorted(findings, key=rank)
    places = {each.place for each in ordered if not each.source}
    return tuple(replace(each, source="") if each.place in places else each for each in ordered)


async def _lay_out(
    sandbox: Sandbox, folder: str, linters: Sequence[Linter], paths: Iterable[str] | None
) -> Ground:
    folders = [f"{folder}/objects", f"{folder}/home"]
    await sandbox.run(["mkdir", "-p", *folders], timeout=TIDY_SECONDS, cwd="/")
    repository = Repository(sandbox, folder)
    await repository.run(["rev-parse", "--verify", "HEAD"])
    try:
        return await _lay_out_changes(sandbox, folder, repository, linters, paths)
    except SandboxUsageError as problem:  # such as a full disk: the diff's doing, not the caller's
        return Ground(no_files=str(problem))


async def _lay_out_changes(
    sandbox: Sandbox,
    folder: str,
    repository: Repository,
    linters: Sequence[Linter],
    paths: Iterable[str] | None,
) -> Ground:
    names = {name for linter in linters for name in linter.tool.configuration}
    bare = [linter for linter in linters if linter.tool.layout == "bare"]
    steered = [linter for linter in linters if linter.tool.layout != "bare"]
    changes = await repository.changes(
        paths,
        wants=lambda path: any(linter.wants(path) for linter in steered),
        wants_bare=lambda path: any(linter.wants(path) for linter in bare),
        configuration=names,
    )
    if not changes.files:
        return Ground(folder=folder, changes=changes)
    known = await repository.base_files()
    steering = near(known, [file.path for file in changes.files], names)
    contents = await repository.contents(sorted({known[path] for path in steering}))
    configuration = {path: contents[known[path]] or b"" for path in steering}
    chosen = await anyio.to_thread.run_sync(_chosen, linters, configuration)
    laid = await anyio.to_thread.run_sync(trees, changes.files, configuration, known)
    as_is = await anyio.to_thread.run_sync(bare_trees, changes.files if bare else ())
    ground = Ground(folder=folder, changes=changes, linters=chosen, trees=laid, bare_trees=as_is)
    await sandbox.upload(await anyio.to_thread.run_sync(_archive, ground), folder)
    if any(linter.tool.layout == "project" for linter in chosen):
        return replace(ground, no_project=await _copy_project(repository, folder))
    return ground


def _chosen(linters: Sequence[Linter], configuration: Mapping[str, bytes]) -> tuple[Linter, ...]:
    """The linters that run, each name once."""
    found: dict[str, Linter] = {}
    for linter in linters:
        if not isinstance(linter, Choice):
            found[linter.tool.name] = linter
    for linter in linters:
        if isinstance(linter, Choice):
            for each in linter.chosen(configuration):
                found.setdefault(each.tool.name, each)
    return tuple(found.values())


def _archive(ground: Ground) -> bytes:
    contents = {f"files/{state}": tree for state, tree in ground.trees.items()}
    contents |= {f"bare/{state}": tree for state, tree in ground.bare_trees.items()}
    for linter in ground.linters:
        own = contents[f"tools/{linter.tool.name}"] = Tree()
        for path, data in linter.tool.files.items():
            own.put(path, data)
    return packed(contents)


async def _copy_project(repository: Repository, folder: str) -> str | None:
    """Why there is no copy, if so."""
    try:
        await repository.run(PROJECTS.format(folder=folder))
    except SandboxUsageError as problem:
        return f"the project could not be copied: {problem}"
    return None


async def _side_by_side(sandbox: Sandbox, ground: Ground, deadline: float) -> list[LintReport]:
    """One report a linter, in their order."""
    reports: dict[int, LintReport] = {}

    async def work(number: int, linter: Linter) -> None:
        reports[number] = await Work(sandbox, linter, ground, deadline).report()

    try:
        async with anyio.create_task_group() as group:
            for number, linter in enumerate(ground.linters):
                group.start_soon(work, number, linter)
    except BaseExceptionGroup as problems:
        lost = _first_infrastructure_failure(problems)
        if lost is None:
            raise
        raise lost from None  # the same for all of them
    return [reports[number] for number in range(len(ground.linters))]


def _first_infrastructure_failure(problem: BaseException) -> SandboxError | None:
    if isinstance(problem, BaseExceptionGroup):
        found = map(_first_infrastructure_failure, problem.exceptions)
        return next((each for each in found if each is not None), None)
    return problem if isinstance(problem, SandboxError) else None
