"""The agent that only runs shell commands: one fenced block a turn, a word to hand the work in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from patchgym.agent.action import Action, Observation, Opening, ToolCall, ToolSpec
from patchgym.agent.agent import Context
from patchgym.agent.chat import ChatTokenizer, Message, find_family
from patchgym.agent.policy import Completion

from .budget import safe, shorten
from .config import BASH_SYSTEM, ScaffoldConfig
from .dialogue import Dialogue, stub_of

_BLOCK = re.compile(r"^```bash[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_OPENED = re.compile(r"^```bash\b", re.MULTILINE)
_SUBMIT = re.compile(r"^[ \t]*`?submit`?[ \t]*$", re.MULTILINE)

_FORMAT = "Write exactly one command, like this:\n```bash\ngrep -rn 'def load' src\n```"
_HAND_IN = "Or, when you are done, the one line\nsubmit"
_STEP = "I look for the function first.\n```bash\ngrep -rn 'def load' src\n```"


class BashAgent:
    """Reads one ```bash block a turn; see `agent.Agent`.

    Works with any environment that offers `bash(command)` and `submit()`. A turn ends at the
    closing fence: output that a model makes up after it would only mislead it.
    """

    stop: tuple[str, ...] = ("\n```\n",)

    def __init__(self, tokenizer: ChatTokenizer, config: ScaffoldConfig | None = None) -> None:
        """The family in `config` is not used: this format needs no template's tools."""
        self._config = config or ScaffoldConfig()
        self._tokenizer = tokenizer
        self._system = find_family(tokenizer, "described").system
        self._dialogue = Dialogue(tokenizer, keep_observations=self._config.keep_observations)

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        """The system prompt and the task."""
        missing = {"bash", "submit"} - {tool.name for tool in tools}
        if missing:
            raise ValueError(f"the bash agent needs an environment with {', '.join(missing)}")
        system = self._config.system or BASH_SYSTEM
        if self._config.example:
            system = f"{system}\n\nOne step of yours looks like this:\n\n{_STEP}"
        task = safe(self._tokenizer, opening.text)
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
        ]
        if not self._system:
            messages = [{"role": "user", "content": f"{system}\n\n{task}"}]
        return self._dialogue.open(messages, ())

    def act(self, completion: Completion) -> Action:
        """Find the one command, or the word that hands the work in."""
        text = self._dialogue.take(completion)
        blocks = _BLOCK.findall(text)
        submits = _SUBMIT.search(_BLOCK.sub("", text)) is not None
        problem = _problem(text, blocks, submits)
        if problem:
            if completion.finish == "length":
                count = len(completion.tokens)
                problem += f" Your turn was cut off after {count} tokens: write less."
            return Action(text=text, problem=f"{problem} Nothing was run. {_FORMAT}\n{_HAND_IN}")
        if submits:
            return Action(text=text, calls=(ToolCall(name="submit"),))
        command = blocks[0].removesuffix("\n")
        return Action(text=text, calls=(ToolCall(name="bash", arguments={"command": command}),))

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        """The command's output as a user message."""
        text = "\n".join(observation.text for observation in observations)
        shown, _ = shorten(self._tokenizer, text, self._config.observation_tokens)
        message: Message = {"role": "user", "content": shown or "(no output)"}
        return self._dialogue.reply([message], stub_of(observations), room=room)


def _problem(text: str, blocks: Sequence[str], submits: bool) -> str:
    """What is wrong with the turn's format; empty when nothing is."""
    if len(blocks) > 1:
        return f"You wrote {len(blocks)} ```bash blocks."
    if blocks and submits:
        return "You wrote a command and `submit` in one turn: which is it?"
    if blocks:
        if "\0" in blocks[0]:
            return "Your command holds a NUL character, which no shell takes."
        return "" if blocks[0].strip() else "Your ```bash block is empty."
    if _OPENED.search(text):
        return "Your ```bash block is not closed by ``` on a line of its own."
    if submits:
        return ""
    if "```" in text:
        return "Your code block is not marked as ```bash, or does not begin a line."
    return "There is no command in your answer."
