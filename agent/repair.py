"""The single-answer repair agent: it shows one function and a failing test, and reads one function.

It owns the words (prompt, replies, parsing) and knows nothing of sandboxes. The answer it looks
for is the function's definition in a Python code block that is opened for the policy; anything else
becomes an observation that says what was wrong with the format.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from patchgym.datasets.task import Task

from .render import ChatTokenizer, render_prompt, render_reply
from .trajectory import Observation

# Put into the assistant's mouth: the answer begins inside the code block. A small model spends its
# few tokens on code instead of talk, and finds the format without having to be lucky.
OPENING = "```python\n"

# An answer ends with its code block, or at the first empty line: what a small model writes after
# the function is noise, which costs tokens and hides a good answer.
STOP_TEXTS = ("```\n", "\n\n")


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
            OPENING,
        )

    def reply(self, last_token: int, observation: Observation) -> tuple[int, ...]:
        """Ids that carry `observation` to the next turn."""
        return render_reply(
            self.tokenizer,
            last_token,
            f"{observation.text}\nFix it.",
            OPENING,
        )

    def parse(self, task: Task, text: str) -> Answer:
        """Find the function in a completion's `text`."""
        name = task.focus.function if task.focus else ""
        # The block was opened for the policy: what it wrote is code up to the closing fence.
        code = _definition(text.partition("```")[0], name)
        if code is None:
            return Answer(code=None, problem=f"Your code block does not define `{name}`.")
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Answer(code=None, problem="Your function is not valid Python.")
        return Answer(code=code)


def _definition(code: str, name: str) -> str | None:
    """The lines of the first top-level `def name`, up to the next line that is not part of it."""
    lines = code.splitlines()
    heads = (f"def {name}(", f"async def {name}(")
    first = next((i for i, line in enumerate(lines) if line.startswith(heads)), None)
    if first is None:
        return None
    last = first + 1
    while last < len(lines) and lines[last][:1] in ("", " ", "\t", ")"):
        last += 1
    return "\n".join(line.rstrip() for line in lines[first:last]).rstrip() + "\n"


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last top-level function called `name`: what importing the module would see."""
    found = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found = node
    return found


def replace_function(source: str, name: str, code: str) -> str:
    """`source` with the function `name` replaced by `code`; raises ValueError without it."""
    node = find_function(ast.parse(source), name)
    if node is None or node.end_lineno is None:
        raise ValueError(f"no function `{name}` at the top level")
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:first], code, *lines[node.end_lineno :]])
