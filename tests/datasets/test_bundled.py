"""The bundled tasks: made by their generator, disjoint by function, red before, green after."""

import ast
import keyword
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from patchgym.datasets import task as task_module
from patchgym.datasets.bundled.functions import EndlessError, Function, define, evaluate
from patchgym.datasets.bundled.generate import FUNCTIONS, generate, main
from patchgym.datasets.bundled.mutate import RULES, mutants
from patchgym.datasets.task import Task, bundled_tasks

COMMITTED = Path(task_module.__file__).parent / "bundled" / "tasks.jsonl"
TASKS = bundled_tasks("train") + bundled_tasks("heldout")


def test_the_committed_file_is_what_the_generator_writes(tmp_path: Path) -> None:
    main(["--seed", "0", "--out", str(tmp_path / "tasks.jsonl")])
    assert (tmp_path / "tasks.jsonl").read_bytes() == COMMITTED.read_bytes()


def test_another_seed_makes_other_tasks() -> None:
    first = list(islice(generate(1), 3))
    assert first == list(islice(generate(1), 3))
    assert not {task.id for task in first} & {task.id for task in TASKS[:3]}


def test_enough_tasks_in_each_split() -> None:
    assert len(bundled_tasks("train")) >= 80
    assert len(bundled_tasks("heldout")) == 40
    assert len(FUNCTIONS) >= 90


def test_no_function_is_in_both_splits() -> None:
    train, heldout = ({_shape(task) for task in bundled_tasks(s)} for s in ("train", "heldout"))
    assert not train & heldout
    names = [task.provenance["function"] for task in TASKS]
    assert len(set(names)) == len(names)


def test_heldout_mistakes_are_of_kinds_seen_in_training() -> None:
    train, heldout = (
        Counter(task.provenance["mutation"] for task in bundled_tasks(split))
        for split in ("train", "heldout")
    )
    assert heldout.keys() <= train.keys() == RULES.keys()


def test_an_id_tells_the_content() -> None:
    for task in TASKS:
        assert task.id == f"repair/{task.provenance['function']}-{task.content[:8]}"


def test_the_statement_is_short_and_quotes_a_failing_test() -> None:
    for task in TASKS:
        assert task.focus is not None and task.files is not None
        assertion = re.search(r"This test fails: `(assert .*)`", task.statement)
        number = task.fail_to_pass[0].rpartition("_")[2]
        assert assertion is not None
        test = f"def test_{number}():\n    {assertion[1]}\n"
        assert test in task.files[task.test_files[0]]
        assert len(task.statement) + len(task.files[task.focus.path]) < 320


def test_nearly_every_mutant_keeps_a_passing_test() -> None:
    assert sum(bool(task.pass_to_pass) for task in TASKS) > 0.8 * len(TASKS)


def test_tests_fail_before_and_pass_after_the_gold_patch(tmp_path: Path) -> None:
    for task in TASKS:
        for path, text in (task.files or {}).items():
            (tmp_path / path).write_text(text)
    before = _outcomes(tmp_path)
    # One flat folder, and so one git for all: no two tasks share a file.
    patch = "".join(task.gold_patch for task in TASKS).encode()
    subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, check=True)
    after = _outcomes(tmp_path)
    for task in TASKS:
        assert [before[test] for test in task.fail_to_pass] == [False] * len(task.fail_to_pass)
        assert [before[test] for test in task.pass_to_pass] == [True] * len(task.pass_to_pass)
        assert [after[test] for test in task.tests] == [True] * len(task.tests)
    assert len(before) == sum(len(task.tests) for task in TASKS)


def _outcomes(folder: Path) -> dict[str, bool]:
    """Whether each test passes, by node id, from one pytest for all of them."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "--junitxml=report.xml", "--tb=no"]
    ini = folder / "pytest.ini"
    ini.write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    subprocess.run([*command, "-c", str(ini)], cwd=folder, capture_output=True, timeout=120)
    cases = ElementTree.parse(folder / "report.xml").iter("testcase")
    return {f"{case.get('classname')}.py::{case.get('name')}": len(case) == 0 for case in cases}


def _shape(task: Task) -> str:
    """The mended function with its name and its parameters numbered."""
    function = next(f for f in FUNCTIONS if f.name == task.provenance["function"])
    return shape(function)


def shape(function: Function) -> str:
    names = {function.name: "f"}
    tree = ast.parse(function.source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names[node.arg] = node.arg = f"a{len(names)}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = "f"
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def test_functions_are_small_distinct_and_fit_for_a_module() -> None:
    assert len({function.name for function in FUNCTIONS}) == len(FUNCTIONS)
    assert len({shape(function) for function in FUNCTIONS}) == len(FUNCTIONS)
    for function in FUNCTIONS:
        assert function.source == ast.unparse(ast.parse(function.source)) + "\n"
        assert function.source.count("\n") <= 5
        assert 3 <= len(function.calls) <= 5
        # Its file must hide no module that a test run imports.
        assert function.name not in sys.stdlib_module_names
        assert not keyword.iskeyword(function.name)


def test_every_kind_of_mistake_is_made_by_its_rule() -> None:
    one_line = {
        "arithmetic": define("f(a, b)", "return a + b", "1, 2"),
        "comparison": define("f(a, b)", "return a > b", "1, 1"),
        "boolean": define("f(a, b)", "return a and b", "1, 0"),
        "constant": define("f(a)", "return a == 3", "3"),
        "call": define("f(a)", "return a.upper()", "'aB'"),
        "off_by_one": define("f(a)", "return len(a)", "'a'"),
        "index": define("f(a)", "return a[0]", "'ab'"),
        "slice": define("f(a)", "return a[::-1]", "'ab'"),
        "negation": define("f(a)", "return not a", "1"),
        "order": define("f(a, b)", "return a - b", "1, 2"),
        "branch": define("f(a)", "return 'x' if a else 'y'", "1"),
        "missing": define("f(a)", "return sorted(a, reverse=True)", "[1, 2]"),
        "text": define("f(a)", "return a + 'xy'", "''"),
    }
    assert one_line.keys() == RULES.keys()
    for kind, function in one_line.items():
        found = [mutant for mutant in mutants(function) if mutant.kind == kind]
        assert found, kind
        for mutant in found:
            assert mutant.source != function.source and mutant.failing


def test_a_mutant_that_raises_is_not_used() -> None:
    function = define("f(a)", "return a + 'x'", "'b'")
    assert not [mutant for mutant in mutants(function) if "-" in mutant.source]


def test_a_mutant_that_never_ends_is_not_used() -> None:
    function = define("f(n)", "while n > 0:\n    n -= 1\nreturn n", "3")
    assert not [mutant for mutant in mutants(function) if "+=" in mutant.source]
    before = sys.gettrace()
    with pytest.raises(EndlessError, match="more than 10000 steps"):
        evaluate("def f():\n    while True:\n        pass\n", ("f()",))
    assert sys.gettrace() is before
