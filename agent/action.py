"""What passes between an agent and an environment: tools, actions, observations.

An agent reads text out of a model and hands the environment *calls* of the tools that it offers;
the environment answers each with an observation. Neither knows how the other works: an agent has
never heard of sandboxes, an environment has never seen a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchgym.sandbox import Outcome

ObservationKind = Literal[
    "output",
    "tests",
    "timeout",
    "tool_error",
    "format_error",
    "patch_refused",
    "no_change",
    "submitted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that an environment offers, as it is shown to the model."""

    name: str
    description: str
    """One or two sentences, for the model."""
    parameters: Mapping[str, object]
    """JSON schema of an object: what the arguments must look like."""

    def as_function(self) -> dict[str, object]:
        """In the form that chat templates read: `{"type": "function", "function": {...}}`."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One use of a tool."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    """JSON types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What an agent read out of a completion."""

    text: str
    """The completion decoded, for people."""
    calls: tuple[ToolCall, ...] = ()
    """In the order in which they are to run."""
    problem: str = ""
    """Without a call: what was wrong with the format and how to do it right, told to the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What an environment says before the first action."""

    text: str
    """The task, in words for the policy."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Named texts that an agent may build its prompt of; each environment documents its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the environment answered to one call."""

    kind: ObservationKind
    """What happened."""
    text: str
    """What the policy reads, should there be another turn."""
    done: bool
    """No further turn is needed: the work is handed in or the tests pass."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcome by test id; empty when no test ran."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Failure text by test id."""
    timed_out: bool = False
    """The command hit its limit."""
    seconds: float = 0.0
    """Wall seconds in the environment."""
    tool: str = ""
    """The tool that answered; empty for what no tool said."""
    dropped: int = 0
    """Characters of output that `text` leaves out; it says so where it does."""
    diff: bytes = b""
    """The working tree against the base commit after the call, where the environment keeps it."""


def format_error(problem: str) -> Observation:
    """The observation that answers an action without a call."""
    return Observation(kind="format_error", text=problem, done=False)


def missing_arguments(spec: ToolSpec, call: ToolCall) -> str:
    """What is wrong with the arguments of `call`, in words for the policy; empty when nothing is.

    Checks names, presence and JSON types at the top level; what a value means is the tool's to say.
    """
    properties = _mapping(spec.parameters.get("properties"))
    required = spec.parameters.get("required")
    names = ", ".join(properties) or "none"
    for name in required if isinstance(required, Sequence) else ():
        if name not in call.arguments:
            return f"{spec.name} needs the argument `{name}`; its arguments are: {names}."
    for name, value in call.arguments.items():
        if name not in properties:
            return f"{spec.name} has no argument `{name}`; its arguments are: {names}."
        wanted = str(_mapping(properties[name]).get("type", ""))
        if wanted in _TYPES and not _is(value, wanted):
            return f"{spec.name}: `{name}` must be of type {wanted}, not {type(value).__name__}."
    return ""


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def _is(value: object, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES[wanted])


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
