"""Which tests of a task its agent may know of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchgym.agent.repository import visible_tests
from patchgym.datasets.environment import Environment
from patchgym.datasets.task import Task

BASE = b"""
import unittest

if True:
    def test_old(): ...

class TestShop(unittest.TestCase):
    def test_price(self): ...

    class Inner:
        async def test_deep(self): ...
"""
DIFF = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"


@pytest.fixture
def task() -> Task:
    return Task(
        id="a",
        statement="x",
        base_commit="0" * 40,
        gold_patch=DIFF.format("a.py"),
        fail_to_pass=("t/test_a.py::test_new", "t/test_a.py::test_old[new]", "t/test_b.py::test_b"),
        pass_to_pass=(
            "t/test_a.py::test_old[1]",
            "t/test_a.py::test_old[2]",
            "t/test_a.py::TestShop::test_price",
            "t/test_a.py::TestShop::test_old",
            "t/test_a.py::TestShop::Inner::test_deep",
            "t/test_a.py::test_price",
            "t/test_c.py::test_c",
        ),
        test_files=("t/test_a.py", "t/test_b.py", "t/test_c.py"),
        repository="/none",
        test_patch=DIFF.format("t/test_a.py") + DIFF.format("t/test_c.py"),
    )


def test_without_a_test_patch_all_are_there(task: Task) -> None:
    plain = replace(task, test_patch="")
    assert visible_tests(plain, {}) == plain.tests


def test_with_one_only_what_the_base_commit_has(task: Task) -> None:
    base = {"t/test_a.py": BASE, "t/test_b.py": b"def test_b(): ...\n", "t/test_c.py": None}
    assert visible_tests(task, base) == (
        "t/test_b.py::test_b",
        "t/test_a.py::test_old",
        "t/test_a.py::TestShop::test_price",
        "t/test_a.py::TestShop::Inner::test_deep",
    )


@pytest.mark.parametrize("data", [b"def (", b"\0", b"(" * 100_000, b"\xff\xfe"])
def test_a_file_that_is_no_python_shows_nothing(task: Task, data: bytes) -> None:
    assert visible_tests(task, {"t/test_a.py": data}) == ()


def test_other_runners_ids_are_found_by_class_and_function(task: Task) -> None:
    other = replace(
        task,
        environment=Environment(report="unittest", test_command="./runtests.py {test_modules}"),
        fail_to_pass=("test_price (shop.test_a.TestNew)",),
        pass_to_pass=(
            "test_price (shop.test_a.TestShop)",
            "shop.test_a.TestShop.test_price",
            "test_new (shop.test_a.TestShop)",
            "A sentence about shops",
            "test_old",
        ),
    )
    assert visible_tests(other, {"t/test_a.py": BASE}) == (
        "test_price (shop.test_a.TestShop)",
        "shop.test_a.TestShop.test_price",
        "test_old",
    )
