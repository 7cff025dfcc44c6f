"""The agent for whatever tools an environment offers, called in the model's own format."""

from __future__ import annotations

from collections.abc import Sequence

from patchgym.agent.action import (
    Action,
    Observation,
    Opening,
    ToolCall,
    ToolSpec,
    missing_arguments,
)
from patchgym.agent.agent import Context
from patchgym.agent.chat import (
    ChatTokenizer,
    Family,
    Malformed,
    Message,
    WrittenCall,
    find_family,
    neutralize,
)
from patchgym.agent.chat.reading import dumps, quoted
from patchgym.agent.policy import Completion

from .budget import safe, shares
from .config import SYSTEM, ScaffoldConfig
from .dialogue import Dialogue, stub_of
from .example import example_call

_THOUGHT, _THOUGHT_END = "<think>", "</think>"


class ToolAgent:
    """Reads calls out of completions and shows what they gave; see `agent.Agent`.

    What a model thinks in `<think>` stays in its context as ids; no call is looked for in it.
    """

    stop: tuple[str, ...] = ()

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        config: ScaffoldConfig | None = None,
        *,
        family: Family | None = None,
    ) -> None:
        """`family` is found out from the template unless it is given."""
        self._config = config or ScaffoldConfig()
        self.family = family or find_family(tokenizer, self._config.family)
        self._tokenizer = tokenizer
        self._dialogue = Dialogue(tokenizer, keep_observations=self._config.keep_observations)
        self._tools: dict[str, ToolSpec] = {}
        self._thinking = False
        self._calls: tuple[WrittenCall, ...] = ()
        self._problem = ""
        self._turn = 0

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        """The system prompt with the tools, and the task."""
        if not tools:
            raise ValueError("the tool agent needs an environment that offers tools")
        self._tools = {tool.name: tool for tool in tools}
        system = self._system(tools)
        task = safe(self._tokenizer, opening.text)
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
        ]
        if not self.family.system:
            messages = [{"role": "user", "content": f"{system}\n\n{task}"}]
        context = self._dialogue.open(messages, tools if self.family.shows_tools else ())
        ending = self._tokenizer.decode(context.tokens[-8:], control=True)
        self._thinking = ending.rstrip().endswith(_THOUGHT)
        return context

    def act(self, completion: Completion) -> Action:
        """Read the calls; one that can't be read or isn't possible makes none of them count."""
        text = self._dialogue.take(completion)
        self._turn += 1
        self._calls, self._problem = (), ""
        try:
            calls = tuple(self.family.format.read(self._spoken(text), self._tools))
            for call in calls:
                self._check(call)
        except Malformed as error:
            self._problem = self._explained(str(error), text, completion)
            return Action(text=text, problem=self._problem)
        self._calls = calls
        return Action(
            text=text,
            calls=tuple(ToolCall(name=call.name, arguments=call.arguments) for call in calls),
        )

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        """What the calls gave, each in its place, or what was wrong with them."""
        if not self._calls:
            # Our own words: the format is shown in the tokens that the model is to write.
            told = self._problem or neutralize(self._tokenizer, observations[-1].text)
            return self._dialogue.reply(
                [{"role": "user", "content": told}], stub_of(observations), room=room
            )
        texts = [observation.text for observation in observations]
        shown = shares(self._tokenizer, texts, self._config.observation_tokens)
        return self._dialogue.reply(self._messages(shown), stub_of(observations), room=room)

    def _messages(self, texts: Sequence[str]) -> list[Message]:
        if not self.family.tool_role:
            results = [f"<tool_response>\n{text}\n</tool_response>" for text in texts]
            return [{"role": "user", "content": "\n".join(results)}]
        return [
            {
                "role": "tool",
                "name": call.name,
                "tool_call_id": call.id or f"{self._turn % 10**6:06d}{place % 1000:03d}",
                "content": text,
            }
            for place, (call, text) in enumerate(zip(self._calls, texts, strict=False))
        ]

    def _spoken(self, text: str) -> str:
        """`text` without what the model thought."""
        body = text.lstrip()
        if self._thinking:
            body = _THOUGHT + body.removeprefix(_THOUGHT)
        if not body.startswith(_THOUGHT):
            return text
        _, found, rest = body.partition(_THOUGHT_END)
        if not found:
            raise Malformed(f"Your thinking has no end: write {_THOUGHT_END}, then call a tool.")
        return rest

    def _check(self, call: WrittenCall) -> None:
        spec = self._tools.get(call.name)
        if spec is None:
            names = ", ".join(self._tools)
            raise Malformed(f"There is no tool `{quoted(call.name)}`; the tools are: {names}.")
        wrong = missing_arguments(spec, ToolCall(name=call.name, arguments=call.arguments))
        if wrong:
            raise Malformed(neutralize(self._tokenizer, wrong[:400]))

    def _explained(self, problem: str, text: str, completion: Completion) -> str:
        """What was wrong, and the right format with the tool that was meant, or the first one."""
        words = problem
        if completion.finish == "length":
            words += f" Your turn was cut off after {len(completion.tokens)} tokens: write less."
        meant = next((s for name, s in self._tools.items() if name in text), None)
        spec = meant or next(iter(self._tools.values()))
        return f"{words} Nothing was run. A call looks like this:\n{self._example(spec)}"

    def _example(self, spec: ToolSpec) -> str:
        return self.family.format.write(example_call(spec))

    def _system(self, tools: Sequence[ToolSpec]) -> str:
        parts = [self._config.system or SYSTEM]
        if not self.family.shows_tools:
            parts.append(self._described(tools))
        if self._config.example:
            step = "I look for the function first."
            parts.append(f"One step of yours looks like this:\n\n{step}\n{self._example(tools[0])}")
        return "\n\n".join(parts)

    def _described(self, tools: Sequence[ToolSpec]) -> str:
        """The tools in our words, for a template that has none."""
        lines = ["Your tools, each with the JSON schema of its arguments:"]
        lines += [f"- {t.name}: {t.description} {dumps(dict(t.parameters))}" for t in tools]
        return "\n".join([*lines, "", "To use one, end your turn with a call in this form:"]) + (
            f"\n{self._example(tools[0])}"
        )
