"""Predictions in every form that they come in, and what is said of those that can't be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.datasets.task import bundled_tasks
from patchgym.rewards.evaluation import (
    EvaluationError,
    Prediction,
    Predictions,
    built_in,
    read_predictions,
)

DIFF = "diff --git a/a.py b/a.py\r\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+\u2028y\n"
ROWS: list[dict[str, str | None]] = [
    {"instance_id": "a__a-1", "model_patch": DIFF, "model_name_or_path": "m"},
    {"instance_id": "a__a-2", "model_patch": None, "model_name_or_path": "m"},
]
EXPECTED = {
    "a__a-1": Prediction(patch=DIFF.encode(), model="m"),
    "a__a-2": Prediction(patch=b"", model="m"),
}


def read(tmp_path: Path, text: str | bytes, name: str = "predictions.jsonl") -> Predictions:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_predictions(path)


def lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


FORMS: dict[str, str] = {
    "lines": lines(*ROWS),
    "lines without an end": lines(*ROWS).rstrip("\n"),
    "lines of Windows": lines(*ROWS).replace("}\n", "}\r\n\r\n"),
    "a list": json.dumps(ROWS),
    "a list over many lines": json.dumps(ROWS, indent=2),
    "a map of rows": json.dumps({str(row["instance_id"]): row for row in ROWS}),
    "with a mark": "\ufeff" + lines(*ROWS),
}


@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, name: str, tmp_path: Path) -> None:
    found = read(tmp_path, FORMS[form], name)
    assert found == Predictions(by_task=EXPECTED)


def test_a_map_of_patches(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps({"a": "x", "b": None}))
    assert found.by_task == {"a": Prediction(patch=b"x"), "b": Prediction(patch=b"")}


@pytest.mark.parametrize("row", ROWS)
def test_a_single_line_is_a_row_and_no_map(row: dict[str, str], tmp_path: Path) -> None:
    assert set(read(tmp_path, lines(row)).by_task) == {row["instance_id"]}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"instance_id": "a"}, "no key model_patch"),
        ({"instance_id": "a", "model_patch": 3}, "model_patch is a number"),
        ({"instance_id": "a", "model_patch": ["x"]}, "model_patch is a list"),
        ({"instance_id": "a", "model_patch": True}, "model_patch is true or false"),
    ],
)
def test_a_row_that_costs_its_own_task(row: object, why: str, tmp_path: Path) -> None:
    found = read(tmp_path, lines(ROWS[0], row))
    assert set(found.by_task) == {"a__a-1"}
    assert set(found.broken) == {"a"}
    assert found.broken["a"].startswith(f"{tmp_path}/predictions.jsonl:2: {why}")
    assert found.ids == {"a", "a__a-1"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"model_patch": "x"}, "no key instance_id"),
        ({"instance_id": 7, "model_patch": "x"}, "instance_id is no text"),
        ({"instance_id": "", "model_patch": "x"}, "instance_id is no text"),
        ([], "a list where an object should be"),
        (3.5, "a number where an object should be"),
        (None, "null where an object should be"),
    ],
)
def test_a_row_for_no_task_is_noted(row: object, why: str, tmp_path: Path) -> None:
    found = read(tmp_path, lines(ROWS[0], row))
    assert set(found.by_task) == {"a__a-1"}
    assert found.notes == (f"{tmp_path}/predictions.jsonl:2: {why}; ignored",)


def test_of_two_the_last_counts(tmp_path: Path) -> None:
    again = {"instance_id": "a__a-1", "model_patch": "later"}
    found = read(tmp_path, lines(*ROWS, again))
    assert found.by_task["a__a-1"] == Prediction(patch=b"later")
    note = f"{tmp_path}/predictions.jsonl:3: a__a-1 is predicted again; the last one counts"
    assert found.notes == (note,)
    broken = read(tmp_path, lines(ROWS[0], {"instance_id": "a__a-1"}))
    assert not broken.by_task
    mended = read(tmp_path, lines({"instance_id": "a__a-1"}, ROWS[0]))
    assert set(mended.by_task) == {"a__a-1"} and not mended.broken


def test_a_key_twice_in_a_map(tmp_path: Path) -> None:
    found = read(tmp_path, '{"a": "first", "b": "x", "a": "last"}')
    assert found.by_task["a"].patch == b"last"
    assert [note.partition(": ")[2] for note in found.notes] == [
        "a: a is predicted again; the last one counts"
    ]


def test_a_map_whose_row_names_another_task(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps({"a": {"instance_id": "b", "model_patch": "x"}}))
    assert "its instance_id is 'b'" in found.broken["a"]


def test_bytes_that_came_as_surrogates_are_those_bytes(tmp_path: Path) -> None:
    found = read(tmp_path, r'{"a": "caf\udce9", "b": "\ud800"}')
    assert found.by_task["a"].patch == b"caf\xe9"
    assert "half a surrogate pair" in found.broken["b"]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (lines(*ROWS) + '{"instance_id": "c", "model_pa', 3, "not JSON (Unterminated string"),
        (lines(ROWS[0]) + "diff --git\n" + lines(ROWS[1]), 2, "not JSON"),
        ("{} {}\n", 1, "not JSON (Extra data"),
        (b"{}\n{}\n\xff\n", 3, "not UTF-8"),
        ("[" * 100_000, 1, "not JSON (nested too deeply"),
        (lines(ROWS[0]) + "9" * 5000, 2, "not JSON"),
    ],
)
def test_a_file_that_is_refused(text: str | bytes, line: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/predictions.jsonl:{line}: {why}")
    assert "\n" not in str(caught.value)


def test_a_damaged_list_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"predictions.json:3: not JSON"):
        read(tmp_path, '[\n  {},\n  {"a": }\n]\n', "predictions.json")


@pytest.mark.parametrize("text", ["", "  \n", "3", '"gold"', "null"])
def test_a_file_without_predictions(text: str, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"predictions.jsonl: n"):
        read(tmp_path, text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="No such file or directory"):
        read_predictions(tmp_path / "nowhere.jsonl")
    with pytest.raises(EvaluationError, match="Is a directory"):
        read_predictions(tmp_path)


def test_built_in() -> None:
    tasks = bundled_tasks("heldout")[:2]
    gold = built_in("gold", tasks)
    assert [each.patch.decode() for each in gold.by_task.values()] == [t.gold_patch for t in tasks]
    assert {each.patch for each in built_in("empty", tasks).by_task.values()} == {b""}
    with pytest.raises(EvaluationError, match="silver"):
        built_in("silver", tasks)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.sampled_from(["instance_id", "model_patch"]), inner)
    ),
    max_leaves=8,
)
PATCHES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
    max_size=5,
)


@given(patches=PATCHES, form=st.sampled_from(["lines", "list", "map"]))
def test_what_was_written_is_read(
    patches: dict[str, str], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [{"instance_id": each, "model_patch": patch} for each, patch in patches.items()]
    by_key = {row["instance_id"]: row for row in rows}
    text = {"lines": lines(*rows), "list": json.dumps(rows), "map": json.dumps(by_key)}[form]
    if form == "lines" and not rows:
        return
    found = read(tmp_path_factory.mktemp("p"), text)
    assert {each: one.patch.decode() for each, one in found.by_task.items()} == patches
    assert not found.broken and not found.notes


@given(rows=st.lists(JSON, min_size=1, max_size=5), whole=st.booleans())
def test_any_json_is_read_or_refused(
    rows: list[object], whole: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = json.dumps(rows) if whole else "".join(json.dumps(row) + "\n" for row in rows)
    try:
        found = read(tmp_path_factory.mktemp("p"), text)
    except EvaluationError as error:
        assert "\n" not in str(error)
        return
    assert not found.by_task.keys() & found.broken.keys()


@given(data=st.binary(max_size=200), name=st.sampled_from(["p.json", "p.jsonl"]))
def test_any_bytes_are_read_or_refused(
    data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        read(tmp_path_factory.mktemp("p"), data, name)
    except EvaluationError as error:
        assert "\n" not in str(error)
