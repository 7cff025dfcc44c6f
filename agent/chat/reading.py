"""Calls as a model wrote them, and what can be wrong with them, in words for the model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from patchgym.agent.action import ToolCall, ToolSpec

Tools = Mapping[str, ToolSpec]
"""The environment's tools by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """One call as the model wrote it."""

    name: str
    arguments: Mapping[str, object]
    id: str = ""
    """The call's own id, where the format has one and the model wrote it."""


class Malformed(Exception):
    """A turn has no readable call; the message says what is wrong, for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """How one family of models writes calls. What `read` can't read, it raises `Malformed` for."""

    name: str
    write: Callable[[ToolCall], str]
    """A call as the model should write it: the example that the model is shown."""
    read: Callable[[str, Tools], Sequence[WrittenCall]]
    """The calls in a turn's text, control tokens spelled, at least one."""
    written: re.Pattern[str]
    """Matches in a template's rendering of a call of `PROBE_TOOL`, for templates of this format."""


PROBE_TOOL = "probe_tool"
"""Name of the tool whose call is rendered to see how a template writes calls."""


def dumps(value: object) -> str:
    """JSON as chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def parse_json(text: str, start: int = 0) -> tuple[object, int]:
    """The JSON value at `start`, blanks skipped, and the place behind it.

    Raises Malformed, which names the likely mistake.
    """
    while text[start : start + 1].isspace():
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
        # Half a surrogate pair is no text that a tool could take.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        _diagnose(text[start:], error)
    except UnicodeEncodeError:
        raise Malformed(r"A string in the JSON holds half of a \u surrogate pair.") from None
    except RecursionError:
        raise Malformed("The JSON is nested too deeply.") from None
    except ValueError as error:
        raise Malformed(f"The JSON is broken: {error}.") from None
    return value, end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_TRAILING = re.compile(r",\s*[}\]]")
_PYTHON = re.compile(r"True|False|None")


def _diagnose(text: str, error: json.JSONDecodeError) -> NoReturn:
    """Malformed with the most telling words for why `text` does not begin with JSON."""
    head = text[:2000]
    if head.startswith("```"):
        raise Malformed("The JSON stands in a code fence: write it without one.") from None
    if not head:
        raise Malformed("The JSON is missing.") from None
    if not head.startswith(("{", "[")):
        raise Malformed("Where the JSON of a call should begin there is other text.") from None
    at = error.pos - (len(error.doc) - len(text))
    near = text[max(0, at - 2) : at + 6]
    if "'" in near:
        raise Malformed("JSON needs double quotes; you wrote single ones.") from None
    if _TRAILING.search(text[max(0, at - 8) : at + 4]):
        raise Malformed("JSON allows no comma before a closing bracket.") from None
    if _PYTHON.match(text[at : at + 6]):
        raise Malformed("JSON writes true, false and null in small letters.") from None
    if "control character" in error.msg:
        raise Malformed("Inside a JSON string write a line break as \\n.") from None
    raise Malformed(f"The JSON is broken at its character {at + 1}: {error.msg}.") from None


def call_of(value: object, key: str) -> WrittenCall:
    """The call that a JSON object with `name` and `key` (its arguments) describes."""
    if not isinstance(value, dict):
        raise Malformed("A call is a JSON object.")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise Malformed('The call has no "name".')
    if key not in value:
        other = next((k for k in ("arguments", "parameters") if k in value), "")
        instead = f'; you wrote "{other}"' if other else ""
        raise Malformed(f'The arguments of a call stand under "{key}"{instead}.')
    extra = sorted(set(value) - {"name", key, "id", "type"})
    if extra:
        raise Malformed(f'A call has "name" and "{key}" only; yours has "{quoted(extra[0])}" too.')
    arguments = value[key]
    if not isinstance(arguments, dict):
        raise Malformed(f'"{key}" must be a JSON object.')
    return WrittenCall(name=name, arguments=arguments, id=known_id(value.get("id")))


_ID = re.compile(r"[A-Za-z0-9]{9}")


def known_id(written: object) -> str:
    """A call's id where it is one that a result can name, else nothing."""
    return written if isinstance(written, str) and _ID.fullmatch(written) else ""


def quoted(text: str) -> str:
    """What a model wrote, short and in letters that spell no control token."""
    return re.sub(r"[^\w .:/-]", "?", text[:40])


def refuse_rest(rest: str) -> None:
    """Malformed where anything but blanks follows the last call."""
    if rest.strip():
        raise Malformed("There is text after the call: end your turn with the call.")


def no_call(text: str, should: str) -> Malformed:
    """For a turn without a call: `should` says how one begins."""
    if re.search(r"```\w*\s*[{\[]", text):
        return Malformed(f"Your call stands in a code fence: {should}")
    if re.search(r'[{,]\s*["\']name["\']\s*:', text):
        return Malformed(f"Your call is not marked as one: {should}")
    return Malformed(f"There is no tool call in your answer: {should}")
