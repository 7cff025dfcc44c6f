"""Rows of R2E-Gym: a commit taken apart into JSON, its own tests, and what they printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import OFFICIAL_WORKDIR
from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .build import TIMEOUT, Parts, build, commanded
from .diffs import NULL, new_files
from .fields import need, plain, table, text
from .git import resolve

FOLDER = "r2e_tests"
COMMAND = ".venv/bin/python -W ignore -m pytest {test_files}"
HIDE = f"rm -rf /{FOLDER} /root/{FOLDER} {OFFICIAL_WORKDIR}/{FOLDER} {OFFICIAL_WORKDIR}/.git"
"""The image holds the tests and the history with the fix; neither is for an agent to see."""
SUMMARY = "short test summary info"
STATES = ("PASSED", "FAILED", "ERROR")
COLOUR = re.compile(r"\x1b\[[0-9;]*m|\r")
ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
MARKS = {"context": " ", "added": "+", "deleted": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """The tests by node id, and how many of the row's no file of it defines."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    left_out: int


def _task(row: Row, sources: Sources) -> Task:
    values = row.values
    commit = table(values, "parsed_commit_content")
    ran = table(values, "execution_result_content")
    codes = _codes(ran)
    repo, mirror = _mirror(need(values, "repo_name"), sources)
    found = _tests(table(values, "expected_output_json"), text(ran, "old_commit_res_stdout"), codes)
    image = need(values, "docker_image")
    statement = need(values, "problem_statement")
    issue = ISSUE.search(statement)
    parts = Parts(
        name=_name_of(values) or row.where,
        repo=repo,
        base_commit=resolve(mirror, need(commit, "old_commit_hash")),
        statement=(issue[1] if issue else statement).strip(),
        gold_patch=_gold(commit),
        test_patch=new_files({f"{FOLDER}/{name}": code for name, code in codes.items()}),
        fail_to_pass=found.fail_to_pass,
        pass_to_pass=found.pass_to_pass,
        repository=mirror,
        provenance={
            "source": "r2e-gym",
            **({"tests_left_out": str(found.left_out)} if found.left_out else {}),
        },
    )
    return build(parts, sources, lambda: _place(image))


def _codes(ran: Mapping[str, Any]) -> dict[str, str]:
    """Its test files by name."""
    names, codes = (plain(ran.get(key)) for key in ("test_file_names", "test_file_codes"))
    if not isinstance(names, list) or not isinstance(codes, list) or len(names) != len(codes):
        raise Unusable("no test_file_codes in its execution_result_content: nothing to run")
    return {str(name): str(code) for name, code in zip(names, codes, strict=True)}


def _place(image: str) -> Environment:
    place = Environment(
        base=image,
        setup=(HIDE,),
        install=("true",),  # has the store lay the commit over the work tree
        variables={"PYTHONWARNINGS": "ignore"},
        workdir=OFFICIAL_WORKDIR,
        timeout=TIMEOUT,
    )
    return commanded(place, COMMAND)


def _mirror(name: str, sources: Sources) -> tuple[str, Path]:
    """The one mirror whose repository has that name; rows don't say whose it is."""
    found = [repo for repo in sources.mirrors if name.lower() == repo.partition("/")[2].lower()]
    if len(found) != 1:
        many = "several mirrors" if found else "no mirror"
        raise Unusable(f"{many} of {name}: give one with --mirror OWNER/{name}=PATH")
    return found[0], sources.mirrors[found[0]]


def _tests(expected: Mapping[str, Any], before: str | None, codes: Mapping[str, str]) -> _Tests:
    """FAIL_TO_PASS is not in a row: it passes in the end, and did not by the log from before."""
    if before is None or SUMMARY not in before:
        raise Unusable("no old_commit_res_stdout with pytest's summary: FAIL_TO_PASS is unknown")
    old = _summary(before)
    places = _places(codes)
    fail: dict[str, None] = {}
    kept: dict[str, None] = {}
    left_out = 0
    for written, state in expected.items():
        name = _key(written)
        if state != "PASSED" or not name:
            continue
        node = _node(name, places, codes)
        if node is None:
            left_out += 1
            continue
        (kept if old.get(name) == "PASSED" else fail)[node] = None
    if not fail:
        raise Unusable("no test of it fails before the fix and passes with it")
    return _Tests(fail_to_pass=tuple(fail), pass_to_pass=tuple(kept), left_out=left_out)


def _key(name: str) -> str:
    """As R2E-Gym compares names: without colour, and without the reason behind them."""
    return COLOUR.sub("", name).split(" - ")[0]


def _summary(log: str) -> dict[str, str]:
    """The outcomes in pytest's summary, by names as `expected_output_json` has them."""
    found: dict[str, str] = {}
    for line in COLOUR.sub("", log).split(SUMMARY, 1)[1].splitlines():
        state = next((each for each in STATES if each in line), None)
        if state and "::" in line:
            found[_key(".".join(line.split("::")[1:]))] = state
    return found


def _places(codes: Mapping[str, str]) -> dict[str, set[str]]:
    """The files that define a function, a class or a method, by its dotted name."""
    places: dict[str, set[str]] = {}
    for file, code in codes.items():
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError):
            continue
        for name in _names(tree.body, ""):
            places.setdefault(name, set()).add(file)
    return places


def _names(body: Sequence[ast.stmt], above: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{above}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{above}{node.name}.")


def _node(name: str, places: Mapping[str, set[str]], codes: Mapping[str, str]) -> str | None:
    """A test's node id; None when no file, or more than one, is known to have it."""
    bare, bracket, rest = name.partition("[")
    files = set(codes) if len(codes) == 1 else places.get(bare, set())
    if not files and "." in bare:  # inherited
        files = places.get(bare.rpartition(".")[0], set())
    if len(files) != 1:
        return None
    return f"{FOLDER}/{next(iter(files))}::{bare.replace('.', '::')}{bracket}{rest}"


def _gold(commit: Mapping[str, Any]) -> str:
    """The commit's diff without its tests."""
    pieces = [
        _file_diff(each)
        for each in commit.get("file_diffs") or ()
        if isinstance(each, Mapping) and not _is_test(_path(each))
    ]
    if not pieces:
        raise Unusable("no file_diffs but tests in its parsed_commit_content: there is no fix")
    return "".join(pieces)


def _path(file_diff: Mapping[str, Any]) -> str:
    header = file_diff.get("header")
    file = header.get("file") if isinstance(header, Mapping) else None
    path = file.get("path") if isinstance(file, Mapping) else None
    if not isinstance(path, str):
        raise Unusable("a file_diff in its parsed_commit_content names no file: mend it")
    return path


def _is_test(path: str) -> bool:
    *folders, name = path.lower().split("/")
    in_tests = any(folder in ("test", "tests", "testing") for folder in folders)
    return in_tests or name.startswith("test_") or name.endswith("_test.py")


def _file_diff(file_diff: Mapping[str, Any]) -> str:
    path = _path(file_diff)
    if file_diff.get("is_binary_file"):
        raise Unusable(f"its fix changes the binary file {path}, which the row does not hold")
    old, new = (_side(file_diff, key, path) for key in ("minus_file", "plus_file"))
    lines = [f"diff --git a/{path} b/{path}"]
    if old == NULL:
        lines.append("new file mode 100644")
    if new == NULL:
        lines.append("deleted file mode 100644")
    hunks = file_diff.get("hunks") or ()
    if hunks:
        lines += [f"--- {old}", f"+++ {new}"]
    for hunk in hunks:
        lines += _hunk(hunk, path)
    return "\n".join(lines) + "\n"


def _side(file_diff: Mapping[str, Any], key: str, path: str) -> str:
    file = file_diff.get(key)
    said = str(file.get("path", "")) if isinstance(file, Mapping) else ""
    return NULL if said == NULL else f"{'a' if key == 'minus_file' else 'b'}/{path}"


def _hunk(hunk: Any, path: str) -> Iterator[str]:
    try:
        spans = [
            f"{sign}{span['start']},{1 if span.get('length') is None else span['length']}"
            for sign, span in zip(
                "-+", (hunk["descriptor"][key] for key in ("old_range", "new_range")), strict=True
            )
        ]
        section = (hunk["descriptor"].get("section") or "").strip()
        yield f"@@ {' '.join(spans)} @@{' ' + section if section else ''}"
        for line in hunk["line_group"]["all_lines"]:
            note = line["type"] == "note"
            yield f"\\ {line['content']}" if note else f"{MARKS[line['type']]}{line['content']}"
    except (KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"a hunk of {path} in its parsed_commit_content has no {error}") from error


def _name_of(values: Values) -> str | None:
    repo, commit = text(values, "repo_name"), text(values, "commit_hash")
    return f"{repo}__{commit}" if repo and commit else None


R2E_GYM = Format(
    name="r2e-gym",
    about="R2E-Gym, V1, Lite and Subset",
    fits=lambda values: "parsed_commit_content" in values and "expected_output_json" in values,
    name_of=_name_of,
    task_of=_task,
)
