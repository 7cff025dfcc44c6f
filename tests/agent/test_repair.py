"""Parsing answers and putting functions back."""

from __future__ import annotations

import pytest

from patchgym.agent import CharacterTokenizer, RepairAgent
from patchgym.agent.repair import replace_function
from patchgym.datasets.task import Task, bundled_tasks


@pytest.fixture
def task() -> Task:
    return bundled_tasks("train")[0]


@pytest.fixture
def agent() -> RepairAgent:
    return RepairAgent(CharacterTokenizer())


def name_of(task: Task) -> str:
    assert task.focus is not None
    return task.focus.function


def test_an_answer_is_the_definition_in_the_opened_block(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1\n"
    assert agent.parse(task, f"{code}```\n").code == code


def test_a_cut_answer_still_counts(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1"
    assert agent.parse(task, code).code == f"{code}\n"


def test_what_follows_the_definition_is_left_out(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    if a:\n        return 1\n    return 2\n"
    noise = f"print({name_of(task)}(1))\ndef half_a_function(\n"
    assert agent.parse(task, code + noise).code == code


def test_a_block_inside_the_block_ends_it(agent: RepairAgent, task: Task) -> None:
    assert agent.parse(task, f"```python\ndef {name_of(task)}(a):\n    return 1\n").code is None


def test_only_the_function_and_nothing_before_it_is_taken(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1\n"
    assert agent.parse(task, f"import os\n{code}```").code == code


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("return a + b", "Your code block does not define `NAME`."),
        ("def other(a):\n    return 1\n```", "Your code block does not define `NAME`."),
        ("def NAME(:\n```", "Your function is not valid Python."),
        ("def NAME(a):\n    return '\0'\n```", "Your function is not valid Python."),
        ("def NAME(a):\n    return " + "(" * 5000, "Your function is not valid Python."),
    ],
)
def test_bad_answers_are_told_what_is_wrong(
    agent: RepairAgent, task: Task, text: str, problem: str
) -> None:
    parsed = agent.parse(task, text.replace("NAME", name_of(task)))
    assert parsed.code is None
    assert parsed.problem == problem.replace("NAME", name_of(task))


def test_only_the_function_is_replaced() -> None:
    source = "import math\n\n\n@cache\ndef f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n"
    changed = replace_function(source, "f", "def f(x):\n    return -x\n")
    assert changed == (
        "import math\n\n\ndef f(x):\n    return -x\n\n\ndef g(x):\n    return f(x)\n"
    )


def test_replacing_a_missing_function_names_it() -> None:
    with pytest.raises(ValueError, match="no function `f`"):
        replace_function("x = 1\n", "f", "def f(): ...\n")


def test_the_last_definition_is_the_one_that_is_replaced() -> None:
    source = "def f():\n    return 1\ndef f():\n    return 2\n"
    assert replace_function(source, "f", "def f(): ...\n") == (
        "def f():\n    return 1\ndef f(): ...\n"
    )
