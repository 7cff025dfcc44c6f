"""SWE-bench's rows as tasks: the classic ones by a recipe, those of 5.x by their own eval script.

A row is used, or it is named with the reason why it can't be; nothing is dropped in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchgym.sandbox.errors import PatchError, SandboxUsageError
from patchgym.sandbox.patch import inspect_diff

from .environment import Environment
from .recipes import OFFICIAL_WORKDIR, Recipe, find_recipe
from .rows import Row, read_rows
from .task import Task, TaskError, load_tasks

TEXTS = ("repo", "base_commit", "patch", "test_patch", "problem_statement")
OWN = ("image", "eval_script", "log_parser")
"""What 5.x rows have besides, and classic ones have not."""
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
"""What an eval script prints around its test command; a log's parser gets what is between."""
SCRIPT_VARIABLE = "PATCHGYM_EVAL_SCRIPT"
SCRIPT_LIMIT = 120_000  # bytes: the kernel takes no variable of 128 KiB
SHEBANG = "#!/bin/bash"
FLAGS = "set -uxo pipefail"


class _Unusable(Exception):
    """Why a row can't be used."""


def read_task_file(
    path: Path, *, recipes: Sequence[Recipe], mirrors: Mapping[str, Path]
) -> tuple[tuple[Task, ...], Mapping[str, str]]:
    """The usable tasks of a file in order, and by id the reason for every row that is not.

    Takes patchgym's own JSON Lines, and SWE-bench's rows as JSON Lines, a JSON list or parquet.
    `mirrors` are local repositories by owner/name. A row without an id goes by `file:line`. Raises
    TaskError when the file can't be read, or has the same id twice. Blocking.
    """
    rows = read_rows(path)
    if not any(_is_foreign(row) for row in rows):
        return load_tasks(path), {}
    tasks: dict[str, Task] = {}
    reasons: dict[str, str] = {}
    for row in rows:
        name = _text(row.values, "instance_id") or row.where
        if name in tasks or name in reasons:
            raise TaskError(f"{row.where}: {name} is there twice: take one out")
        try:
            tasks[name] = _task(row, recipes, mirrors)
        except _Unusable as reason:
            reasons[name] = str(reason)
    return tuple(tasks.values()), reasons


def _is_foreign(row: Row) -> bool:
    return "instance_id" in row.values or "FAIL_TO_PASS" in row.values


def _task(row: Row, recipes: Sequence[Recipe], mirrors: Mapping[str, Path]) -> Task:
    if row.problem:
        raise _Unusable(row.problem)
    values = row.values
    name = _text(values, "instance_id")
    if not name:
        raise _Unusable("no instance_id: add it")
    for key in TEXTS:
        if not _text(values, key):
            raise _Unusable(f"no {key} in it: every row needs one")
    fail_to_pass = _tests(values, "FAIL_TO_PASS")
    if not fail_to_pass:
        raise _Unusable("no FAIL_TO_PASS: nothing would tell whether it is resolved")
    repo, version = str(values["repo"]), _version(values)
    test_files = _test_files(str(values["test_patch"]))
    if repo not in mirrors:
        raise _Unusable(f"no mirror of {repo}: clone it, and give --mirror {repo}=PATH")
    place = _place(name, repo, version, values, recipes)
    try:
        return Task(
            id=name,
            statement=str(values["problem_statement"]),
            base_commit=str(values["base_commit"]),
            gold_patch=_ended(str(values["patch"])),
            fail_to_pass=fail_to_pass,
            # a name that is in both lists is judged once
            pass_to_pass=tuple(
                test for test in _tests(values, "PASS_TO_PASS") if test not in set(fail_to_pass)
            ),
            test_files=test_files,
            test_patch=_ended(str(values["test_patch"])),
            repository=str(mirrors[repo].resolve()),
            image=place.image,
            environment=place.environment,
            repo=repo,
            version=version,
            split=_text(values, "split") or "test",
            provenance={"source": "swe-bench"},
        )
    except TaskError as error:
        raise _Unusable(str(error).removeprefix(f"{name}: ")) from error


def _test_files(diff: str) -> tuple[str, ...]:
    try:
        found = kept_paths(diff.encode())
    except PatchError as error:
        raise _Unusable(f"test_patch is refused: {error}") from error
    if not found:
        raise _Unusable("test_patch is no git diff that leaves a file: paste the whole of it")
    return found


def kept_paths(diff: bytes) -> tuple[str, ...]:
    """The paths that a diff touches and that are there when it is applied, sorted.

    Raises PatchError when one must not be touched.
    """
    touched: set[str] = set()
    gone: set[str] = set()
    for part in re.split(rb"(?m)^(?=diff --git )", diff):
        header = re.split(rb"(?m)^(?:@@ |GIT binary patch)", part, maxsplit=1)[0]
        if not header.startswith(b"diff --git "):
            continue
        names = inspect_diff(header)
        touched |= names
        for line in header.split(b"\n"):
            if line.startswith(b"deleted file mode "):
                gone |= names
            elif line.startswith(b"rename from "):
                gone |= inspect_diff(line)
    return tuple(sorted(touched - gone))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a task's tests run, and how."""

    environment: Environment
    image: str | None


def _place(
    name: str,
    repo: str,
    version: str | None,
    values: Mapping[str, Any],
    recipes: Sequence[Recipe],
) -> _Place:
    """A recipe's environment where there is one: its reports are worth more than a log."""
    own = all(_text(values, key) for key in OWN)
    if values.get("image_assets") and _assets(values["image_assets"]):
        raise _Unusable("its tests need files that no diff holds (image_assets): not supported")
    recipe = find_recipe(recipes, repo, version)
    if recipe is not None:
        ready = _text(values, "image") if own else None
        return _Place(recipe.environment, ready or recipe.image_of(name))
    if not own:
        raise _Unusable(
            f"no recipe for {repo} {version or '(no version)'}: write one, see --recipes"
        )
    return _Place(_own_environment(values), str(values["image"]))


def _own_environment(values: Mapping[str, Any]) -> Environment:
    """The eval script of a 5.x row, graded by its log."""
    from patchgym.sandbox.testing.logs import check

    kind = _text(values, "eval_type") or "pass_and_fail"
    if kind != "pass_and_fail":
        raise _Unusable(f"eval_type {kind}: it counts tests that did not run as passed")
    parser = str(values["log_parser"])
    try:
        check(parser)
    except SandboxUsageError as error:
        raise _Unusable(str(error)) from error
    script = test_part(str(values["eval_script"]))
    if len(script.encode()) > SCRIPT_LIMIT:
        raise _Unusable(f"eval_script is over {SCRIPT_LIMIT} bytes: write a recipe instead")
    return Environment(
        base=str(values["image"]),
        test_command=f'bash -c "${SCRIPT_VARIABLE}"',
        report=f"log:{parser}",
        variables={SCRIPT_VARIABLE: script},
        workdir=OFFICIAL_WORKDIR,
        timeout=1800.0,
    )


def test_part(script: str) -> str:
    """An eval script that prints what its tests print and ends with their exit code.

    What comes before the tests still runs, in the same shell, but unheard; what would come after
    them, mostly putting the test files back, is left out.
    """
    lines = script.rstrip("\n").split("\n")
    starts = [number for number, line in enumerate(lines) if START in line]
    ends = [number for number, line in enumerate(lines) if END in line]
    if not starts or not ends or ends[0] < starts[0]:
        raise _Unusable(f"eval_script has no {START!r} before {END!r}: use one of swebench 5")
    before = [line for line in lines[: starts[0]] if line not in (SHEBANG, FLAGS)]
    tests = lines[starts[0] + 1 : ends[0]]
    quiet = ["{", ":", *before, "} >/dev/null 2>&1"]
    return "\n".join(["set -uo pipefail", *quiet, *tests, ""])


def _assets(value: object) -> bool:
    """Whether a row's tests need binary files that its diffs can't carry."""
    try:
        declared = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return True
    if not isinstance(declared, dict):
        return bool(declared)
    return any(declared.get(key) for key in ("test_patch", "patch"))


def _tests(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of test ids, each kept as it is; as a JSON string, too, as the first sets had it."""
    found: object = values.get(key)
    if isinstance(found, str):
        try:
            found = json.loads(found) if found.strip() else []
        except json.JSONDecodeError as error:
            raise _Unusable(f"{key} is not JSON ({error.msg}): give a list of test ids") from error
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _Unusable(f"{key} is no list of texts: give a list of test ids")
    return tuple(dict.fromkeys(found))


def _version(values: Mapping[str, Any]) -> str | None:
    found = values.get("version")
    return None if found is None or found == "" else str(found)


def _text(values: Mapping[str, Any], key: str) -> str | None:
    found = values.get(key)
    return found if isinstance(found, str) and found.strip() else None


def _ended(diff: str) -> str:
    """With the newline that a diff ends with; rows have lost it now and then."""
    return diff if diff.endswith("\n") else diff + "\n"
