"""What a change did not need, as the component tells it: kinds, excuses, bounds."""

# Tables: one entry a line reads best.
# ruff: noqa: E501

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from changes import NO_CHANGE, change, changed_file, scene

from patchgym.rewards.base import Verdict
from patchgym.rewards.component import Measurement, UnknownValue
from patchgym.rewards.components.needless_changes import NeedlessChanges
from patchgym.rewards.scene import Change, Scene

SHOP = '''\
"""Prices."""

import os
import sys

LIMIT = 10


def price(item, count):
    """What count of them cost."""
    # Taxes come later.
    total = item.cost
    for each in item.extras:
        total += each.cost
    return total


def name_of(item):
    """The item's name."""
    text = item.name
    if not text:
        text = "none"
    return text.strip()


def is_dear(item):
    # A matter of taste.
    return price(item, 1) > LIMIT
'''
Files = dict[str, str | bytes | None]
BASE: Files = {"shop.py": SHOP}
FIXED = SHOP.replace("total = item.cost\n", "total = item.cost * count\n")
GOLD = change(BASE, {"shop.py": FIXED})


def measured(made: Change, gold: Change = NO_CHANGE) -> Measurement:
    return NeedlessChanges().measure(scene(made, gold))


def kinds(after: Files, gold: Change = NO_CHANGE) -> dict[str, list[str]]:
    """Paths, and lines, of what is found, by kind."""
    found: dict[str, list[str]] = {}
    for fault in measured(change(BASE, after), gold).faults:
        place = fault.path if fault.line is None else f"{fault.path}:{fault.line}"
        found.setdefault(fault.message.partition(":")[0], []).append(place)
    return found


def fixed(*swaps: tuple[str, str]) -> Files:
    """The mended shop with further edits."""
    text = FIXED
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    return {"shop.py": text}


CLEAN: dict[str, Files] = {
    "the fix alone": fixed(),
    "a comment at the fix": fixed(("    total =", "    # One price for each.\n    total =")),
    "a comment at its line": fixed(("* count\n", "* count  # for each\n")),
    "the comment above the fix": fixed(("Taxes come later", "Taxes come now")),
    "the docstring of the function that is fixed": fixed(("What count of", "What so many of")),
    "a new function with its docstring": fixed(
        ("\n\ndef name_of", '\n\ndef double(item):\n    """Two."""\n    return price(item, 2)\n\n\ndef name_of')
    ),
    "an import that the fix needs": fixed(("import os\n", "import math\nimport os\n"), ("* count", "* math.ceil(count)")),
    "an import that nothing needs any more": fixed(("import os\n", "")),
    "lines in a new block": fixed(
        ("    for each in item.extras:\n        total += each.cost\n",
         "    if item.extras:\n        for each in item.extras:\n            total += each.cost\n")
    ),
    "another variable": fixed(("return text.strip()", "return item.name.strip()")),
    "a call of a new name": fixed(("text.strip()", "text.casefold()")),
    "a variable of another meaning": fixed(("total += each.cost", "total += each.price")),
    "a test": {**fixed(), "tests/test_more.py": "def test_more():\n    assert True\n"},
    "a change log": {**fixed(), "CHANGES.md": "- Prices are right.\n"},
    "a page of documentation": {**fixed(), "docs/prices.rst": "Prices\n======\n"},
    "test data": {**fixed(), "tests/data/output.log": "x\n"},
    "an import only where it is used": fixed(("import os\n", ""), ("    total =", "    import os\n\n    total =")),
    "the file gone": {"shop.py": None},
}  # fmt: skip


@pytest.mark.parametrize("after", CLEAN.values(), ids=CLEAN)
def test_a_clean_change_has_nothing_needless(after: Files) -> None:
    assert measured(change(BASE, after)).value == 0
    assert measured(change(BASE, after), GOLD).value == 0


NEEDLESS: dict[str, tuple[str, Files]] = {
    "blank lines elsewhere": ("whitespace", fixed(("\n\ndef is_dear", "\n\n\n\ndef is_dear"))),
    "blanks at a line's end": ("whitespace", fixed(("text = item.name", "text = item.name  "))),
    "blanks within a line": ("whitespace", fixed(("def is_dear(item)", "def is_dear( item )"))),
    "blanks beside the fix": ("whitespace", fixed(("for each in item.extras:", "for each  in item.extras:"))),
    "blank lines within the fix": ("whitespace", fixed(("    total = item", "\n\n    total = item"))),
    "other line ends": ("whitespace", {"shop.py": FIXED.replace("\n", "\r\n")}),
    "other indentation": ("whitespace", fixed(("    # A matter of taste.\n    return", "  # A matter of taste.\n  return"))),
    "other quotes": ("layout", fixed(('text = "none"', "text = 'none'"))),
    "a call over several lines": ("layout", fixed(("price(item, 1) >", "price(\n        item,\n        1,\n    ) >"))),
    "imports in another order": ("layout", fixed(("import os\nimport sys", "import sys\nimport os"))),
    "a comment elsewhere": ("comments", fixed(("matter of taste", "question of taste"))),
    "a new comment elsewhere": ("comments", fixed(("    return price(item", "    # Ten is dear.\n    return price(item"))),
    "a variable's name": ("renames", fixed(("text", "label"))),
    "breakpoint": ("debug", fixed(("    return total", "    breakpoint()\n    return total"))),
    "pdb": ("debug", fixed(("    return total", "    import pdb; pdb.set_trace()\n    return total"))),
    "print": ("debug", fixed(("    return total", "    print(total)\n    return total"))),
    "print after if": ("debug", fixed(("    return total", "    if total: print(total)\n    return total"))),
    "pprint": ("debug", fixed(("    return total", "    pprint.pprint(total)\n    return total"))),
    "print to stderr": ("debug", fixed(("    return total", "    print(total, file=sys.stderr)\n    return total"))),
    "console.log": ("debug", {**fixed(), "web/cart.js": "export function f(x) {\n  console.log(x);\n}\n"}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "after"), NEEDLESS.values(), ids=NEEDLESS)
def test_one_needless_thing_is_told_and_felt(kind: str, after: Files) -> None:
    assert set(kinds(after, GOLD)) == {kind}
    assert measured(change(BASE, after), GOLD).value > 0.05


@pytest.mark.parametrize(
    "path",
    [
        "poetry.lock",
        "web/package-lock.json",
        "web/app.min.js",
        "shop_pb2.py",
        "a.egg-info/PKG-INFO",
    ],
)
def test_generated_files_and_lock_files_are_needless_unless_gold_has_them(path: str) -> None:
    after = {**fixed(), path: "x\n"}
    assert kinds(after) == {"generated": [path]}
    assert not kinds(after, change(BASE, after))


def test_a_lock_file_beside_its_manifest_is_no_stray() -> None:
    assert not kinds({**fixed(), "poetry.lock": "x\n", "pyproject.toml": "[project]\n"})


@pytest.mark.parametrize(
    "path",
    ["reproduce.py", "repro_issue.py", "test_fix.py", "shop.py.orig", "shop.py.rej", "debug.log",
     "shop_backup.py", "FIX_SUMMARY.md", "notes.txt", ".idea/shop.xml", "shop.py~", "nohup.out"],
)  # fmt: skip
def test_files_that_were_left_behind_are_needless(path: str) -> None:
    assert kinds({**fixed(), path: "x\n"}) == {"stray": [path]}


def test_a_test_at_the_root_is_no_stray_where_the_tests_are_there() -> None:
    made = change(BASE, {**fixed(), "test_more.py": "def test_more():\n    assert True\n"})
    at_root = scene(made, GOLD, test_files=("test_shop.py",))
    assert NeedlessChanges().measure(at_root).value == 0


def test_a_file_that_only_moves_is_needless_and_one_that_moves_for_gold_is_not() -> None:
    moved = Change(tree="x", files=(changed_file("store.py", SHOP, SHOP, old_path="shop.py"),))
    assert [each.message for each in measured(moved).faults] == [
        "file_renames: shop.py under another name"
    ]
    assert measured(moved, moved).value == 0


def test_a_file_whose_mode_alone_changed_is_told() -> None:
    made = Change(tree="x", files=(changed_file("shop.py", SHOP, SHOP),))
    assert [each.message for each in measured(made).faults] == ["modes: only its mode changed"]


def test_names_that_others_know_count_only_where_gold_left_them_alone() -> None:
    after = fixed(("name_of", "label_of"))
    assert kinds(after) == kinds({"shop.py": SHOP.replace("name_of", "label_of")}) == {}
    assert kinds(after, GOLD) == {"renames": ["shop.py:18"]}
    assert kinds(after, change(BASE, after)) == {}


def test_a_name_that_was_there_before_is_no_rename() -> None:
    after = fixed(("def name_of(item):", "def name_of(count):"), ("item.name", "count.name"))
    assert kinds(after, GOLD) == {}


def test_a_name_of_which_some_is_left_is_no_rename() -> None:
    after = fixed(("    text = item.name\n", "    label = item.name\n"))
    assert kinds(after, GOLD) == {}


@pytest.mark.parametrize("kind", ["debug", "comments", "whitespace", "layout", "renames"])
def test_what_gold_does_in_the_same_file_is_excused(kind: str) -> None:
    after = next(after for found, after in NEEDLESS.values() if found == kind)
    assert not kinds(after, change(BASE, after))


def test_a_print_is_fine_where_there_were_some_in_scripts_and_in_tests() -> None:
    printing = {"a.py": "def f():\n    print(1)\n"}
    more = {"a.py": "def f():\n    print(1)\n    print(2)\n"}
    assert measured(change(printing, more)).value == 0
    for path in ("scripts/a.py", "setup.py", "tests/helper.py", "shop/__main__.py"):
        assert measured(change({}, {path: "print(1)\n"})).value == 0
    shown = "def show(x):\n    print(x)\n\n\nif __name__ == '__main__':\n    print(show(1))\n"
    assert measured(change({}, {"a.py": shown})).value == 0


def test_files_that_no_test_loads_are_told_only_when_that_is_known() -> None:
    after = {**fixed(), "other.py": "x = 1\n", "docs/conf.py": "x = 1\n", "setup.py": "x = 1\n"}
    made = change(BASE, after)
    unknown = measured(made)
    assert unknown.value == 0
    assert "no test loads" in unknown.detail
    verdict = Verdict(status="resolved", evidence="report", loaded=("shop.py",))
    found = NeedlessChanges().measure(scene(made, GOLD, verdict=verdict))
    assert [fault.path for fault in found.faults] == ["other.py"]
    assert found.value > 0.04
    assert found.detail == ""
    assert NeedlessChanges().measure(scene(made, made, verdict=verdict)).value == 0


def test_the_counts_are_evidence_and_the_worst_come_first() -> None:
    after = {**fixed(("text = item.name", "text = item.name  ")), "reproduce.py": "x\n"}
    found = measured(change(BASE, after))
    assert (found.evidence["whitespace"], found.evidence["stray"]) == (1, 1)
    assert [fault.path for fault in found.faults] == ["reproduce.py", "shop.py"]


def test_kinds_can_be_left_out() -> None:
    made = change(BASE, fixed(("    return total", "    print(total)\n    return total")))
    assert NeedlessChanges(ignore=("debug",)).measure(scene(made)).value == 0
    with pytest.raises(ValueError, match=r"ignore names 'bugs': the kinds are whitespace,"):
        NeedlessChanges(ignore=("bugs",))
    with pytest.raises(ValueError, match="scale is 0"):
        NeedlessChanges(scale=0)


def test_a_large_change_may_hold_a_little_more() -> None:
    stray = {"reproduce.py": "x\n"}
    large = {"shop.py": FIXED + "".join(f"x{n} = {n}\n" for n in range(500))}
    small_value = measured(change(BASE, {**fixed(), **stray})).value
    assert 0.05 < measured(change(BASE, {**large, **stray})).value < small_value


def test_a_diff_that_does_not_apply_is_unknown() -> None:
    with pytest.raises(UnknownValue, match="corrupt patch"):
        measured(Change(tree="x", problem="corrupt patch"))


def test_the_scene_and_the_answer_can_go_to_another_process() -> None:
    verdict = Verdict(status="resolved", evidence="report")
    again: Scene = pickle.loads(pickle.dumps(scene(GOLD, GOLD, verdict=verdict)))
    found = NeedlessChanges().measure(again)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_change_of_this_repository_into_itself_has_nothing_needless(root: Path) -> None:
    files: Files = {
        str(path): path.read_bytes() for path in sorted((root / "rewards").rglob("*.py"))
    }
    assert len(files) > 20
    assert measured(change({}, files)).value == 0
