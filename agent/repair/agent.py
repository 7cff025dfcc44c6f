"""The single-answer repair agent: it shows one function and a failing test, and reads one function.

It owns the words (prompt, replies, parsing) and knows nothing of sandboxes. The answer it looks
for is the function's definition in a Python code block that is opened for the policy; anything else
becomes an observation that says what was wrong with the format.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from patchgym.agent.action import Action, Observation, Opening, ToolCall, ToolSpec
from patchgym.agent.agent import Context
from patchgym.agent.chat import ChatTokenizer, render_prompt, render_reply
from patchgym.agent.policy import Completion

# Put into the assistant's mouth: the answer begins inside the code block. A small model spends its
# few tokens on code instead of talk, and finds the format without having to be lucky.
OPENING = "```python\n"

# An answer ends with its code block, or at the first empty line: what a small model writes after
# the function is noise, which costs tokens and hides a good answer.
STOP_TEXTS = ("```\n", "\n\n")


class RepairAgent:
    """Prompts for, and parses, whole-function answers; see `agent.Agent`."""

    stop = STOP_TEXTS

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self._function = ""
        self._last_token = -1

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        """The first user message: the faulty source and the task's statement."""
        if "source" not in opening.facts or "function" not in opening.facts:
            raise ValueError("the repair agent needs an environment that shows it a function")
        self._function = opening.facts["function"]
        tokens = render_prompt(
            self.tokenizer,
            f"This Python function has a bug:\n```python\n{opening.facts['source'].strip()}\n```\n"
            f"{opening.text}\nWrite the fixed function in a ```python block.",
            OPENING,
        )
        return Context(tokens=tokens)

    def act(self, completion: Completion) -> Action:
        """Find the function in a completion."""
        self._last_token = completion.tokens[-1]
        text = self.tokenizer.decode(completion.tokens)
        # The block was opened for the policy: what it wrote is code up to the closing fence.
        code = _definition(text.partition("```")[0], self._function)
        if code is None:
            return Action(text=text, problem=f"Your code block does not define `{self._function}`.")
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Action(text=text, problem="Your function is not valid Python.")
        return Action(
            text=text, calls=(ToolCall(name="replace_function", arguments={"code": code}),)
        )

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        """Carry the observation to the next turn."""
        words = f"{observations[-1].text}\nFix it."
        return Context(tokens=render_reply(self.tokenizer, self._last_token, words, OPENING))


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
