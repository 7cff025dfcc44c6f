"""Parsing answers and putting functions back."""

from __future__ import annotations

import pytest

from patchgym.agent import Action, CharacterTokenizer, Completion, Opening, RepairAgent
from patchgym.agent.repair.source import replace_function
from patchgym.datasets.task import Task, bundled_tasks


@pytest.fixture
def task() -> Task:
    return bundled_tasks("train")[0]


TOKENIZER = CharacterTokenizer()


@pytest.fixture
def agent(task: Task) -> RepairAgent:
    agent = RepairAgent(TOKENIZER)
    facts = {"function": name_of(task), "source": "def f(): pass\n"}
    agent.open(Opening(text=task.statement, facts=facts), (), room=10_000)
    return agent


def act(agent: RepairAgent, text: str) -> Action:
    tokens = tuple(TOKENIZER.encode(text))
    logprobs = (0.0,) * len(tokens)
    return agent.act(
        Completion(tokens=tokens, logprobs=logprobs, policy_version=0, finish="length")
    )


def code_of(agent: RepairAgent, text: str) -> object:
    action = act(agent, text)
    return action.calls[0].arguments["code"] if action.calls else None


def name_of(task: Task) -> str:
    assert task.focus is not None
    return task.focus.function


def test_an_answer_is_the_definition_in_the_opened_block(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1\n"
    assert code_of(agent, f"{code}```\n") == code


def test_a_cut_answer_still_counts(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1"
    assert code_of(agent, code) == f"{code}\n"


def test_what_follows_the_definition_is_left_out(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    if a:\n        return 1\n    return 2\n"
    noise = f"print({name_of(task)}(1))\ndef half_a_function(\n"
    assert code_of(agent, code + noise) == code


def test_a_block_inside_the_block_ends_it(agent: RepairAgent, task: Task) -> None:
    assert code_of(agent, f"```python\ndef {name_of(task)}(a):\n    return 1\n") is None


def test_only_the_function_and_nothing_before_it_is_taken(agent: RepairAgent, task: Task) -> None:
    code = f"def {name_of(task)}(a):\n    return 1\n"
    assert code_of(agent, f"import os\n{code}```") == code


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
    action = act(agent, text.replace("NAME", name_of(task)))
    assert action.calls == ()
    assert action.problem == problem.replace("NAME", name_of(task))


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
