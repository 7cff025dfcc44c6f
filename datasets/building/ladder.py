"""Finds an environment in which a commit's tests can start: proposals, built and checked in turn.

    a user's recipe ─────────────────────────────────────────────► its environment, as it is
    else proposals: build the image ─► start the runner in it ─► the first that does
                      │ compiler or library missing: once more with Debian's packages for it
                      └ fails otherwise: the next proposal that may do better

Nobody waits for others but in `ImageStore`, which builds an image once, whoever asks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio.to_thread

from patchgym.datasets.environment import Environment
from patchgym.datasets.images import DISK_MIB, MEMORY_MIB, PIDS, image_recipe
from patchgym.datasets.recipes import Recipe, find_recipe
from patchgym.sandbox import BuildAccess, ImageError, ImageStore, Pool, SandboxSnapshot, SandboxSpec
from patchgym.sandbox.images.base import BASES

from .failures import BuildFailure, classify, classify_collection, packages_for
from .history import read_tree
from .pins import index_has_dates, sharing_date
from .proposal import Kind, Proposal
from .propose import propose
from .python import with_packages

CHECK_LIMIT = 300.0  # seconds for the runner to start and collect
LEASE_LIMIT = 120.0  # seconds for a sandbox
OUTPUT_LIMIT = 8 << 20  # bytes of what it prints
SHARE = 0.1  # of the test modules that may fail to load
LASTING: tuple[Kind, ...] = (
    "python_version", "dependency_conflict", "dependency_missing", "compiler_missing",
    "system_library", "unknown",
)  # fmt: skip
"""Failures of a build that come again: neighbours in history need not try."""
MOST_KNOWN = 1000
_KNOWN: dict[tuple[Path, str], BuildFailure] = {}


async def environment_of(
    repository: Path,
    commit: str,
    *,
    store: ImageStore,
    recipes: Sequence[Recipe] = (),
    subproject: str = "",
) -> Environment:
    """The environment for a commit of a local repository, in which its tests were seen to start.

    The first of `recipes` that fits is taken as it is. Commits with equal manifests in the same
    quarter of a year get equal environments, and so share an image. `subproject` is a folder of
    the tree that holds the project. Raises BuildFailure, TaskError when the commit is not there,
    EngineUnavailable, SandboxUnavailable, SandboxLost.
    """
    tree = await anyio.to_thread.run_sync(read_tree, repository, commit, subproject)
    for name in tree.names:
        recipe = find_recipe(recipes, name, tree.release or None)
        if recipe is not None:
            return recipe.environment
    proposals = propose(
        tree.files,
        date=sharing_date(tree.committed, tree.changed),
        subproject=subproject,
        dates=await anyio.to_thread.run_sync(_dates),
        release=tree.release,
    )
    if not proposals:
        where = f"in {subproject}" if subproject else "at the root"
        log = await _note(store, commit, f"no manifest {where} that is known here\n")
        raise BuildFailure("no_python_manifest", f"no known manifest {where}", log)
    return await _climb(_Commit(repository, commit, store), proposals)


@dataclass(frozen=True, slots=True)
class _Commit:
    """What is to be built, and where."""

    repository: Path
    id: str
    store: ImageStore


async def _climb(commit: _Commit, proposals: Sequence[Proposal]) -> Environment:
    """The first proposal that does; of the failures, the first one is told."""
    failures: list[BuildFailure] = []
    more: set[str] = set()
    for proposal in proposals:
        if failures and proposal.after and failures[-1].kind not in proposal.after:
            continue
        environment = with_packages(proposal.environment, more)
        while True:
            try:
                await _try(commit, environment, proposal.check)
                return environment
            except BuildFailure as failure:
                failures.append(failure)
                text = await anyio.to_thread.run_sync(_read, failure.log)
                wanted = set(packages_for(text, failure.kind)) - set(environment.packages)
            if not wanted:
                break
            more |= wanted
            environment = with_packages(environment, wanted)
        if failures[-1].kind in ("disk", "network"):
            raise failures[-1]
    # What the best proposal lacked, in its last form, says more than what the makeshifts did.
    raise failures[0]


async def _try(commit: _Commit, environment: Environment, check: str) -> None:
    """Build it and start the tests in it. Raises BuildFailure."""
    key = commit.store.folder, repr(environment)
    if key in _KNOWN and not environment.install:
        raise _KNOWN[key]
    try:
        tag, ready = await _image(commit, environment)
    except ImageError as error:
        failure = await _build_failure(commit, error)
        if failure.kind in LASTING and len(_KNOWN) < MOST_KNOWN:
            _KNOWN[key] = failure
        raise failure from error
    if check:
        await _check(commit, environment, check, tag, ready)


async def _image(commit: _Commit, environment: Environment) -> tuple[str, SandboxSnapshot | None]:
    recipe = image_recipe(environment)
    if recipe.base not in BASES.values() and not await commit.store.obtain(recipe.base):
        raise ImageError(f"image {recipe.base} is not here and no registry gives it")
    if recipe.install:
        baked = await commit.store.bake(
            commit.repository, commit.id, recipe, workdir=environment.workdir
        )
        return baked.image, baked.snapshot
    return await commit.store.environment(recipe), None


async def _build_failure(commit: _Commit, error: ImageError) -> BuildFailure:
    found = re.search(r"log: (/.+\.log)$", str(error))
    if found:
        log = Path(found[1])
        text = await anyio.to_thread.run_sync(_read, log)
    else:
        log, text = await _note(commit.store, commit.id, f"{error}\n"), str(error)
    said = classify(f"{text}\n{error}" if "not built within" in str(error) else text)
    return BuildFailure(said.kind, said.line, log)


async def _check(
    commit: _Commit,
    environment: Environment,
    check: str,
    tag: str,
    ready: SandboxSnapshot | None,
) -> None:
    spec = SandboxSpec(
        image=tag,
        workdir=environment.workdir,
        writable_root=ready is not None,
        memory_mib=MEMORY_MIB,
        disk_mib=DISK_MIB,
        pids=PIDS,
    )
    async with (
        Pool(spec, size=1) as pool,
        pool.lease(timeout=LEASE_LIMIT, snapshot=ready, borrower=f"check {commit.id[:12]}") as box,
    ):
        if ready is None:
            await box.checkout(commit.repository, commit.id)
        else:
            box.use_workdir(environment.workdir)
        done = await box.run(
            check,
            timeout=CHECK_LIMIT,
            environment=dict(environment.variables),
            output_limit=OUTPUT_LIMIT,
        )
    printed = done.stdout.text() + done.stderr.text()
    if done.timed_out:
        log = await _note(commit.store, commit.id, f"$ {check}\n{printed}")
        raise BuildFailure("timeout", f"the tests were not collected in {CHECK_LIMIT:g} s", log)
    if not enough_collected(done.exit_code, printed):
        log = await _note(commit.store, commit.id, f"$ {check}\n{printed}")
        said = classify_collection(printed)
        raise BuildFailure(said.kind, said.line, log)


def enough_collected(exit_code: int | None, printed: str) -> bool:
    """Whether a runner that only collects did: without an error, with no test to be found (pytest's
    exit code 5), or with errors in at most a tenth of the test modules, yet one may always fail."""
    if exit_code in (0, 5):
        return True
    if exit_code not in (1, 2, 3):
        return False
    summary = re.findall(r"(\d+)(?:/\d+)? tests? collected.*?(\d+) errors?", printed)
    if not summary:
        return False
    tests, errors = int(summary[-1][0]), int(summary[-1][1])
    modules = len(set(re.findall(r"(?m)^([\w./+-]+\.py)(?:::|: \d+$)", printed)))
    return tests > 0 and errors <= max(1, SHARE * max(modules, 1))


async def _note(store: ImageStore, commit: str, text: str) -> Path:
    """A log of our own, beside those of builds."""
    path = store.folder / "logs" / f"check-{commit[:12]}-{secrets.token_hex(4)}.log"

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")

    await anyio.to_thread.run_sync(write)
    return path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@cache
def _dates() -> bool:
    """Whether this machine's index has dates; asked once."""
    return index_has_dates(BuildAccess.of_this_machine())
