"""Parsing answers and putting functions back."""

from __future__ import annotations

import ast

import pytest

from patchgym.agent import CharacterTokenizer, RepairAgent
from patchgym.agent.repair import find_function, replace_function, source_of
from patchgym.datasets.task import Task, bundled_tasks


@pytest.fixture
def task() -> Task:
    return bundled_tasks("train")[0]


@pytest.fixture
def agent() -> RepairAgent:
    return RepairAgent(CharacterTokenizer())


def answer(name: str, body: str = "    return 1") -> str:
    return f"Sure.\n```python\ndef {name}(a):\n{body}\n```\nDone."


def test_an_answer_is_the_function_in_the_first_block(agent: RepairAgent, task: Task) -> None:
    assert task.focus is not None
    name = task.focus.function
    assert agent.parse(task, answer(name)).code == f"def {name}(a):\n    return 1\n"


def test_an_unclosed_block_still_counts(agent: RepairAgent, task: Task) -> None:
    assert task.focus is not None
    text = f"```python\ndef {task.focus.function}(a):\n    return 1\n"
    assert agent.parse(task, text).code is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("return a + b", "There is no ```python block in your answer."),
        ("```python\ndef (:\n```", "Your code block is not valid Python."),
        ("```python\ndef other(a):\n    return 1\n```", "Your code block does not define"),
        ("```python\n\0\n```", "Your code block is not valid Python."),
    ],
)
def test_bad_answers_are_told_what_is_wrong(
    agent: RepairAgent, task: Task, text: str, problem: str
) -> None:
    parsed = agent.parse(task, text)
    assert parsed.code is None
    assert parsed.problem.startswith(problem)


def test_only_the_function_is_replaced() -> None:
    source = "import math\n\n\n@cache\ndef f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n"
    changed = replace_function(source, "f", "def f(x):\n    return -x\n")
    assert changed == (
        "import math\n\n\ndef f(x):\n    return -x\n\n\ndef g(x):\n    return f(x)\n"
    )


def test_replacing_a_missing_function_names_it() -> None:
    with pytest.raises(ValueError, match="no function `f`"):
        replace_function("x = 1\n", "f", "def f(): ...\n")


def test_the_last_definition_is_the_one_that_counts() -> None:
    source = "def f():\n    return 1\ndef f():\n    return 2\n"
    node = find_function(ast.parse(source), "f")
    assert node is not None
    assert source_of(source, node) == "def f():\n    return 2\n"
