"""Rows of SWE-rebench, V1 and V2: SWE-bench's columns, an image, and an `install_config`."""

from __future__ import annotations

from dataclasses import replace

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import OFFICIAL_PATH, OFFICIAL_WORKDIR
from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task

from .base import Format, Sources, Unusable, Values
from .build import TIMEOUT, Parts, build, log_in, pytest_in
from .fields import plain, table, text, texts, words
from .swebench import fits, name_of, parts_of

PYTEST = "parse_log_pytest"


def _task(row: Row, sources: Sources) -> Task:
    values = row.values
    parts = replace(parts_of(values, "swe-rebench"), provenance=_provenance(values))
    return build(parts, sources, lambda: _place(parts, values))


def _place(parts: Parts, values: Values) -> Environment:
    """Pytest where that is what it runs; for other languages the log, by swebench's parsers."""
    config = table(values, "install_config")
    image = text(values, "docker_image") or text(values, "image_name")
    if image is None:
        raise Unusable("no docker_image and no image_name in it: write a recipe")
    command = " && ".join(texts(config, "test_cmd"))
    if not command:
        raise Unusable("no test_cmd in its install_config: write a recipe")
    parser = text(config, "log_parser") or PYTEST
    workdir = _workdir(parts, values)
    if parser.startswith(PYTEST):
        return pytest_in(image, parts.tests, command=command, workdir=workdir)
    place = Environment(
        base=image, variables={"PATH": OFFICIAL_PATH}, workdir=workdir, timeout=TIMEOUT
    )
    return log_in(place, command, parser)


def _workdir(parts: Parts, values: Values) -> str:
    """V1's images have the repository where SWE-bench's do, V2's in a folder of its own name."""
    second = "language" in values or "swerebenchv2/" in str(values.get("image_name"))
    return f"/{parts.repo.partition('/')[2]}" if second else OFFICIAL_WORKDIR


def _provenance(values: Values) -> dict[str, str]:
    """With what its language models thought of a task; that is no share of attempts."""
    meta = table(values, "meta")
    scores = plain(meta.get("llm_score"))
    judged = plain(meta.get("llm_metadata"))
    notes = words(values, "created_at", "license", "license_name", "language")
    if isinstance(scores, dict):
        notes |= words(scores, "difficulty_score", "issue_text_score", "test_score")
    if isinstance(judged, dict):
        notes |= words(judged, "difficulty")
    return {"source": "swe-rebench", **notes}


SWE_REBENCH = Format(
    name="swe-rebench",
    about="SWE-rebench, V1 and V2",
    fits=lambda values: fits(values) and "install_config" in values,
    name_of=name_of,
    task_of=_task,
)
