"""Rows of a chat file and ATIF documents, as sequences to imitate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from patchgym.agent.action import ToolCall, ToolSpec
from patchgym.agent.chat import ChatTokenizer, Family, find_family, neutralize
from patchgym.trainer.policies import fingerprint

from .errors import FormatError
from .sft import SftSequence, sft_sequence
from .shape import ChatShape

_VERSION = re.compile(r"ATIF-v1\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Turns documents into sequences for one tokenizer."""

    tokenizer: ChatTokenizer
    fingerprint: str
    family: Family
    delimiters: frozenset[str]
    """Control tokens that a message may not spell."""

    @classmethod
    def of(cls, tokenizer: ChatTokenizer) -> Reader:
        """A reader that gives sequences for this tokenizer."""
        return cls(
            tokenizer=tokenizer,
            fingerprint=fingerprint(tokenizer),
            family=find_family(tokenizer),
            delimiters=_delimiters(tokenizer),
        )

    def chat(self, row: Mapping[str, Any]) -> Iterator[tuple[SftSequence, bool]]:
        """The sequence of a chat's row, and whether its own ids were taken. FormatError."""
        _refuse_text(row)
        tokens = row.get("tokens")
        if isinstance(tokens, dict) and tokens.get("tokenizer") == self.fingerprint:
            yield self._exact(tokens.get("ids"), tokens.get("loss_mask")), True
            return
        yield self._rendered(_list(row, "messages"), _specs(row.get("tools"))), False

    def atif(self, document: Mapping[str, Any]) -> Iterator[tuple[SftSequence, bool]]:
        """The sequences of an ATIF document, likewise."""
        if not _VERSION.fullmatch(str(document.get("schema_version"))):
            raise FormatError(
                f"schema_version is {document.get('schema_version')!r}: not ATIF-v1.*"
            )
        extra = _mapping(_mapping(document.get("extra")).get("patchgym"))
        _refuse_text(extra)
        steps = [step for step in _list(document, "steps") if _counts(step)]
        if extra.get("tokenizer") and extra["tokenizer"] == self.fingerprint:
            yield from ((sequence, True) for sequence in self._from_ids(steps))
            return
        tools = _specs(_mapping(document.get("agent")).get("tool_definitions"))
        yield self._rendered(list(self._messages(steps)), tools), False

    def _rendered(self, messages: Sequence[Any], tools: Sequence[ToolSpec]) -> SftSequence:
        if not all(isinstance(message, dict) for message in messages):
            raise FormatError("a message is no object")
        written = [self._written(message) for message in messages]
        shown = tools if self.family.shows_tools else ()
        return sft_sequence(
            self.tokenizer,
            written,
            tools=shown,
            delimiters=self.delimiters,
            rendered=self.fingerprint,
        )

    def _written(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """OpenAI's `tool_calls` are written out, as this model writes them."""
        calls = message.get("tool_calls")
        if message.get("role") != "assistant" or not calls:
            return message
        texts = [message.get("content") or "", *(self._call(call) for call in calls)]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**rest, "content": "\n".join(text for text in texts if text)}

    def _call(self, call: Any) -> str:
        function = _mapping(_mapping(call).get("function"))
        arguments = function.get("arguments") or {}
        try:
            known = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            known = None
        if not isinstance(known, dict) or not isinstance(function.get("name"), str):
            raise FormatError("a tool call has no name, or arguments that are no JSON object")
        return self.family.format.write(ToolCall(name=function["name"], arguments=known))

    def _exact(self, ids: Any, mask: Any) -> SftSequence:
        if not _integers(ids) or not _integers(mask):
            raise FormatError("`tokens` has no lists of ids and loss_mask")
        return SftSequence(tokens=tuple(ids), loss_mask=tuple(bool(each) for each in mask))

    def _from_ids(self, steps: Sequence[Mapping[str, Any]]) -> Iterator[SftSequence]:
        """One sequence for each history that goes on."""
        tokens: list[int] = []
        mask: list[bool] = []
        for step in steps:
            if step["source"] != "agent":
                continue
            metrics = _mapping(step.get("metrics"))
            prompt, sampled = metrics.get("prompt_token_ids"), metrics.get("completion_token_ids")
            if not _integers(prompt) or not _integers(sampled):
                raise FormatError(f"step {step.get('step_id')} has no token ids, others have")
            if prompt[: len(tokens)] != tokens:
                yield SftSequence(tokens=tuple(tokens), loss_mask=tuple(mask))
                tokens, mask = [], []
            mask += [False] * (len(prompt) - len(tokens)) + [True] * len(sampled)
            tokens = [*prompt, *sampled]
        yield SftSequence(tokens=tuple(tokens), loss_mask=tuple(mask))

    def _messages(self, steps: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        message: dict[str, Any]
        for step in steps:
            text, extra = _text(step.get("message")), _mapping(step.get("extra"))
            if step["source"] != "agent":
                message = {"role": step["source"], "content": text}
                yield message | {key: extra[key] for key in ("rendered", "ids") if key in extra}
                continue
            calls = step.get("tool_calls") or ()
            if extra.get("calls_in_message") is not True:
                written = [self._atif_call(call) for call in calls]
                text = "\n".join(part for part in (text, *written) if part)
            message = {"role": "assistant", "content": text}
            message |= {key: extra[key] for key in ("prefill", "finish") if key in extra}
            yield message
            yield from self._results(step, bool(calls))

    def _results(self, step: Mapping[str, Any], called: bool) -> Iterator[dict[str, Any]]:
        results = _mapping(step.get("observation")).get("results") or ()
        # What an environment printed is no more to be trusted here than in a rollout.
        texts = [
            neutralize(self.tokenizer, _text(_mapping(result).get("content", "")))
            for result in results
        ]
        if not texts:
            return
        if called and self.family.tool_role:
            yield from ({"role": "tool", "content": text} for text in texts)
        elif called:
            wrapped = (f"<tool_response>\n{text}\n</tool_response>" for text in texts)
            yield {"role": "user", "content": "\n".join(wrapped)}
        else:
            yield {"role": "user", "content": "\n".join(texts)}

    def _atif_call(self, call: Any) -> str:
        known = _mapping(call)
        name, arguments = known.get("function_name"), known.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise FormatError("a tool call has no function_name, or arguments that are no object")
        return self.family.format.write(ToolCall(name=name, arguments=arguments))


def _delimiters(tokenizer: ChatTokenizer) -> frozenset[str]:
    """Without a readable template, at least what ends a turn."""
    try:
        return ChatShape.of(tokenizer).delimiters
    except FormatError:
        ends = (tokenizer.decode([end], control=True) for end in tokenizer.end_ids)
        return frozenset(end for end in ends if end)


def _refuse_text(labels: Mapping[str, Any]) -> None:
    """What a chat endpoint said is never trained on; its export says so."""
    if labels.get("trainable") is False:
        raise FormatError("it is marked as not for training: a chat endpoint's text")


def _counts(step: Any) -> bool:
    """ATIF: copied context and steps without a model's call must be left out of training."""
    if not isinstance(step, dict) or step.get("source") not in ("system", "user", "agent"):
        raise FormatError("a step has no source that is system, user or agent")
    called = step["source"] != "agent" or step.get("llm_call_count") != 0
    return called and step.get("is_copied_context") is not True


def _text(content: Any) -> str:
    """Text, or the parts of a content that are; FormatError for images and sounds."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = [_mapping(part).get("text") for part in content] if isinstance(content, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise FormatError("a message has parts that are no text")
    return "".join(str(text) for text in texts)


def _specs(tools: Any) -> list[ToolSpec]:
    """Tools in OpenAI's form; what is none is left out."""
    functions = [_mapping(_mapping(tool).get("function")) for tool in tools or ()]
    return [
        ToolSpec(
            name=str(function["name"]),
            description=str(function.get("description", "")),
            parameters=_mapping(function.get("parameters")),
        )
        for function in functions
        if "name" in function
    ]


def _list(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or not value:
        raise FormatError(f"it has no list of {key}")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _integers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int for each in value)
