"""The single-answer repair agent: it shows one function and a failing test, and reads one function.

It owns the words (prompt, replies, parsing) and knows nothing of sandboxes. The answer it looks
for is a fenced Python block that defines the function; anything else becomes an observation that
says what was wrong with the format.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from patchgym.datasets.task import Task

from .render import ChatTokenizer, render_prompt, render_reply
from .trajectory import Observation

# The closing fence, which ends the useful part of an answer. An opening fence reads "```python\n".
STOP_TEXTS = ("```\n",)

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A parsed completion."""

    code: str | None
    """Source of the function, or None."""
    problem: str = ""
    """With no code: what to do differently, told to the policy."""


class RepairAgent:
    """Prompts for, and parses, whole-function answers."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer

    def prompt(self, task: Task, source: str) -> tuple[int, ...]:
        """Ids of the first user message: the faulty source and the task's statement."""
        return render_prompt(
            self.tokenizer,
            f"This Python function has a bug:\n```python\n{source.strip()}\n```\n"
            f"{task.statement.strip()}\nWrite the fixed function in a ```python block.",
        )

    def reply(self, last_token: int, observation: Observation) -> tuple[int, ...]:
        """Ids that carry `observation` to the next turn."""
        return render_reply(
            self.tokenizer,
            last_token,
            f"{observation.text}\nWrite the fixed function in a ```python block.",
        )

    def parse(self, task: Task, text: str) -> Answer:
        """Find the function in a completion's `text`."""
        name = task.focus.function if task.focus else ""
        match = _FENCE.search(text)
        if match is None:
            return Answer(code=None, problem="There is no ```python block in your answer.")
        code = match.group(1)
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError):
            return Answer(code=None, problem="Your code block is not valid Python.")
        node = find_function(tree, name)
        if node is None:
            return Answer(code=None, problem=f"Your code block does not define `{name}`.")
        return Answer(code=source_of(code, node))


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last top-level function called `name`: what importing the module would see."""
    found = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found = node
    return found


def source_of(source: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The lines of `node`, decorators included, with one newline at the end."""
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    lines = source.splitlines()[first : node.end_lineno]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def replace_function(source: str, name: str, code: str) -> str:
    """`source` with the function `name` replaced by `code`; raises ValueError without it."""
    node = find_function(ast.parse(source), name)
    if node is None or node.end_lineno is None:
        raise ValueError(f"no function `{name}` at the top level")
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:first], code, *lines[node.end_lineno :]])
