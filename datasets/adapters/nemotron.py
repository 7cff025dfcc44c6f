"""Rows as Nemotron's sets have them: another set's row, wrapped for a training framework.

responses_create_params.metadata.instance_dict      the row, as JSON text
pass_rate                                           share of attempts that solved it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .fields import plain, table, text, words

WRAPPING = "responses_create_params"
NO_TESTS = ("golden_patch", "relevant_file_contents")
"""What Nemotron-Cascade-RL-SWE has, which was made for a judge that runs nothing."""


def nemotron(formats: Sequence[Format]) -> Format:
    """The format, for rows of those formats within."""

    def name_of(values: Values) -> str | None:
        inner = _inner(values)
        form = _form(inner, formats)
        named = form.name_of(inner) if form else None
        return named or text(inner, "instance_id") or text(values, "instance_id")

    def task_of(row: Row, sources: Sources) -> Task:
        if all(key in row.values for key in NO_TESTS):
            raise Unusable(
                "no tests and no commit in it: import its source's rows, by the same instance_id"
            )
        inner = _inner(row.values)
        form = _form(inner, formats)
        if form is None:
            raise Unusable(f"no {WRAPPING}.metadata.instance_dict of a format that is known here")
        task = form.task_of(Row(where=row.where, values=inner), sources)
        notes = words(row.values, "pass_rate", "pass_rate_total", "dataset")
        return replace(
            task,
            difficulty=_difficulty(row.values),
            provenance={**task.provenance, "wrapped_by": "nemotron", **notes},
        )

    return Format(
        name="nemotron",
        about="Nemotron's and NeMo Gym's rows, which wrap another format's",
        fits=lambda values: WRAPPING in values or all(key in values for key in NO_TESTS),
        name_of=name_of,
        task_of=task_of,
    )


def _inner(values: Values) -> Mapping[str, Any]:
    """The row within; empty when there is none."""
    try:
        metadata = table(table(values, WRAPPING), "metadata")
        return table(metadata, "instance_dict") or metadata
    except Unusable:
        return {}


def _form(inner: Values, formats: Sequence[Format]) -> Format | None:
    return next((form for form in formats if form.fits(inner)), None)


def _difficulty(values: Values) -> float | None:
    """Observed: one less the share of attempts that passed."""
    rate = plain(values.get("pass_rate"))
    usable = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= 1
    return round(1 - rate, 6) if usable and isinstance(rate, int | float) else None
