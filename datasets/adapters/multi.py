"""Rows of Multi-SWE-bench and Multi-SWE-RL: a pull request, and tests by what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .build import Parts, build
from .fields import need, plain, table, text

PASSED = ("PASS", "PASSED", "XFAIL")


def _task(row: Row, sources: Sources) -> Task:
    """Its log parsers are code of its harness, one a repository: here a recipe stands for them."""
    values = row.values
    fixed = _passing(values, "fixed_tests") or _mended(values)
    if not fixed:
        raise Unusable("no fixed_tests: nothing would tell whether it is resolved")
    known = set(fixed)
    name = _name_of(values)
    parts = Parts(
        name=name or row.where,
        repo=f"{need(values, 'org')}/{need(values, 'repo')}",
        base_commit=need(table(values, "base"), "sha"),
        statement=_statement(values),
        gold_patch=need(values, "fix_patch"),
        test_patch=need(values, "test_patch"),
        fail_to_pass=fixed,
        pass_to_pass=tuple(test for test in _passing(values, "p2p_tests") if test not in known),
        provenance={
            "source": "multi-swe-bench",
            "pull_request": str(values.get("number")),
            **({"language": lang} if (lang := text(values, "lang")) else {}),
        },
    )
    return build(parts, sources)


def _mended(values: Values) -> tuple[str, ...]:
    """Those of the three maps that fixed_tests is made of: failed, skipped or not there before."""
    maps = ("f2p_tests", "s2p_tests", "n2p_tests")
    return tuple(dict.fromkeys(test for key in maps for test in _passing(values, key)))


def _passing(values: Values, key: str) -> tuple[str, ...]:
    """The tests of a map that pass with the fix."""
    return tuple(dict.fromkeys(name for name, states in _entries(values, key) if _passes(states)))


def _entries(values: Values, key: str) -> Iterator[tuple[str, Any]]:
    """A map by name; in parquet a list of pairs, or a struct with every name of the whole file."""
    found = plain(values.get(key))
    if isinstance(found, list):
        for each in found:
            if isinstance(each, Mapping) and isinstance(each.get("name"), str):
                yield each["name"], each
            elif isinstance(each, tuple | list) and len(each) == 2 and isinstance(each[0], str):
                yield each[0], each[1]
        return
    for name, states in table(values, key).items():
        if states is not None:
            yield name, states


def _passes(states: object) -> bool:
    return isinstance(states, Mapping) and states.get("fix") in PASSED


def _statement(values: Values) -> str:
    """The issues that the pull request resolves; its own text tells of the fix."""
    issues = plain(values.get("resolved_issues"))
    said = [
        "\n\n".join(part for part in (text(each, "title"), text(each, "body")) if part)
        for each in (issues if isinstance(issues, list) else [])
        if isinstance(each, Mapping)
    ]
    if not any(said):
        raise Unusable("no resolved_issues: the pull request's own text tells of the fix")
    return "\n\n".join(part.strip() for part in said if part)


def _name_of(values: Values) -> str | None:
    if given := text(values, "instance_id"):
        return given
    org, repo, number = (values.get(key) for key in ("org", "repo", "number"))
    return f"{org}__{repo}-{number}" if org and repo and number is not None else None


MULTI_SWE_BENCH = Format(
    name="multi-swe-bench",
    about="Multi-SWE-bench and Multi-SWE-RL",
    fits=lambda values: all(key in values for key in ("org", "repo", "fix_patch", "base")),
    name_of=_name_of,
    task_of=_task,
)
