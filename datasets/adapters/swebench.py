"""Rows of SWE-bench (classic, Verified, Lite, Multilingual, 5.x), SWE-bench-Live and SWE-Gym."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from patchgym.datasets.environment import Environment
from patchgym.datasets.rows import Row
from patchgym.datasets.swebench import read_task_file
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .build import Parts, build, pytest_in
from .fields import both_lists, need, plain, tests, text, texts, words

COMMON = ("instance_id", "repo", "base_commit", "problem_statement", "FAIL_TO_PASS")
NOTES = ("difficulty", "created_at", "pull_number")


def name_of(values: Values) -> str | None:
    """The id that all of these have."""
    return text(values, "instance_id")


def fits(values: Values) -> bool:
    """Whether the columns that all of these share are there."""
    return all(key in values for key in COMMON)


def _task(row: Row, sources: Sources) -> Task:
    """As `patchgym evaluate` reads the same row."""
    values = {key: plain(value) for key, value in row.values.items()}
    for key in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        values[key] = list(tests(values, key))
    with tempfile.TemporaryDirectory(prefix="patchgym-row-") as folder:
        path = Path(folder) / "row.jsonl"
        path.write_text(json.dumps(values, default=str) + "\n", encoding="utf-8")
        found, reasons = read_task_file(path, recipes=sources.recipes, mirrors=sources.mirrors)
    if not found:
        raise Unusable(next(iter(reasons.values())))
    return replace(found[0], provenance={**found[0].provenance, **words(values, *NOTES)})


def parts_of(values: Values, source: str) -> Parts:
    """What rows of this shape say; raises Unusable."""
    fail_to_pass, pass_to_pass = both_lists(values)
    version = values.get("version")
    return Parts(
        name=need(values, "instance_id"),
        repo=need(values, "repo"),
        base_commit=need(values, "base_commit"),
        statement=need(values, "problem_statement"),
        gold_patch=need(values, "patch"),
        test_patch=need(values, "test_patch"),
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        version=None if version in (None, "") else str(version),
        split=text(values, "split") or "train",
        provenance={"source": source, **words(values, *NOTES)},
    )


def _gym(row: Row, sources: Sources) -> Task:
    """Its images are named after the id; its tests go by their node ids."""
    parts = parts_of(row.values, "swe-gym")
    name = parts.name.lower().replace("__", "_s_")
    image = f"xingyaoww/sweb.eval.x86_64.{name}:latest"
    return build(parts, sources, lambda: pytest_in(image, parts.tests))


def _live(row: Row, sources: Sources) -> Task:
    parts = parts_of(row.values, "swe-bench-live")
    return build(parts, sources, lambda: _live_place(parts, row.values))


def _live_place(parts: Parts, values: Values) -> Environment:
    """The Python set is tested by pytest; for other languages a row brings its parser as code."""
    parser = (text(values, "log_parser") or text(values, "parser") or "").strip().lower()
    if parser not in ("", "pytest"):
        raise Unusable("its log parser is code of the row's, which is not run here: write a recipe")
    name = parts.name.lower().replace("__", "_1776_")
    image = text(values, "docker_image") or f"starryzhang/sweb.eval.x86_64.{name}:latest"
    steps = (*texts(values, "rebuild_cmds"), *texts(values, "test_cmds"))
    return pytest_in(image, parts.tests, command=" ; ".join(steps) or "pytest -rA")


def _is_live(values: Values) -> bool:
    return fits(values) and "test_cmds" in values


def _is_gym(values: Values) -> bool:
    """SWE-bench's columns, but lists for its JSON texts, and no environment_setup_commit."""
    lists = isinstance(plain(values.get("FAIL_TO_PASS")), list)
    own = any(key in values for key in ("environment_setup_commit", "eval_script", "image"))
    return fits(values) and lists and not own


SWE_BENCH = Format(
    name="swe-bench",
    about="SWE-bench: classic, Verified, Lite, Multilingual, 5.x",
    fits=fits,
    name_of=name_of,
    task_of=_task,
)
SWE_BENCH_LIVE = Format(
    name="swe-bench-live",
    about="SWE-bench-Live, its Python set; the others by recipes",
    fits=_is_live,
    name_of=name_of,
    task_of=_live,
)
SWE_GYM = Format(
    name="swe-gym", about="SWE-Gym, full and Lite", fits=_is_gym, name_of=name_of, task_of=_gym
)
