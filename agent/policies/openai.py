"""Any OpenAI-compatible chat endpoint, for evaluation only.

Text goes in and text comes out: there are no token ids and no logprobs of them, so nothing that is
answered here can be trained on. `OpenAIEndpoint` is a `TextPolicy` and no `Policy`: a rollout that
records turns for the learner does not take it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

import anyio

from .calls import JsonCalls
from .errors import PolicyAnswerError, PolicyTimeout, PolicyUnavailable, one_line
from .served import authorization

Message: TypeAlias = Mapping[str, Any]
"""A message of a chat, in OpenAI's form: `role`, `content`, and what tools need."""

TextFinish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that the model wants called."""

    name: str
    arguments: Mapping[str, Any]
    """Parsed; empty when `problem` says that they could not be."""
    call_id: str = ""
    problem: str = ""
    """Why the arguments make no sense, for the model to read; empty when they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCompletion:
    """What an endpoint answered, as text."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: TextFinish
    prompt_tokens: int
    """As the endpoint counts them; 0 when it doesn't say."""
    completion_tokens: int


class TextPolicy(Protocol):
    """A model that chats in text: good for evaluation, never for training."""

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> TextCompletion:
        """The next message of a chat; `tools` are OpenAI function definitions."""
        ...


class OpenAIEndpoint:
    """Asks `POST {url}/chat/completions`; an async context manager. Implements TextPolicy."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key_variable: str | None = None,
        turn_limit: float = 900.0,
        call_limit: float = 600.0,
    ) -> None:
        """`url` ends in `/v1` as a rule; the key is read from the variable of that name.

        A turn may take `turn_limit` seconds, retries included, and one try `call_limit`. Proxies
        named by the environment are followed.
        """
        self._calls = JsonCalls(url, headers=authorization(api_key_variable), proxies=True)
        self._model = model
        self._turn_limit, self._call_limit = turn_limit, call_limit

    async def __aenter__(self) -> OpenAIEndpoint:
        """Make the client; connects to nothing yet."""
        await self._calls.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close connections."""
        with anyio.CancelScope(shield=True):
            await self._calls.close()

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> TextCompletion:
        """See TextPolicy. Overload, a broken connection and errors of the server are tried again,
        with growing waits, until `turn_limit`; then PolicyTimeout with the last reason."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_new_tokens,
            "temperature": temperature,
        }
        if tools:
            body["tools"] = [dict(tool) for tool in tools]
        if stop:
            body["stop"] = list(stop)
        if seed is not None:
            body["seed"] = seed
        return _completion(self._calls.url, await self._tried(body))

    async def _tried(self, body: Mapping[str, Any]) -> Any:
        end, wait = time.monotonic() + self._turn_limit, _FIRST_WAIT
        while True:
            left = max(0.001, end - time.monotonic())
            try:
                limit = min(left, self._call_limit)
                return await self._calls.post("/chat/completions", body, limit=limit)
            except PolicyUnavailable as error:
                # Spread, so that many turns refused together don't come back together.
                pause = wait * random.uniform(0.5, 1.0) if error.wait is None else error.wait
                if time.monotonic() + pause >= end:
                    raise PolicyTimeout(f"gave up after {self._turn_limit:g} s: {error}") from error
                await anyio.sleep(pause)
                wait = min(2 * wait, _LONGEST_WAIT)


def _completion(where: str, answer: Any) -> TextCompletion:
    try:
        choice = answer["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        text = message.get("content") or ""
        calls = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
        usage = answer.get("usage") or {}
        spent = (int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise PolicyAnswerError(
            f"{where}: not the form of a chat completion: {type(error).__name__} {one_line(error)}"
        ) from error
    if finish not in ("stop", "length", "tool_calls", "content_filter"):
        raise PolicyAnswerError(f"{where}: unknown finish_reason {finish!r}")
    if not isinstance(text, str):
        raise PolicyAnswerError(f"{where}: the message's content is not text")
    return TextCompletion(
        text=text,
        tool_calls=calls,
        finish=finish,
        prompt_tokens=spent[0],
        completion_tokens=spent[1],
    )


def _tool_call(call: Any) -> ToolCall:
    """A call as it came; what the model wrote badly is for the model to hear of."""
    function = call["function"]
    name, written = str(function["name"]), function.get("arguments") or "{}"
    arguments: Any = written
    problem = ""
    if isinstance(written, str):
        try:
            arguments = json.loads(written)
        except ValueError as error:
            arguments, problem = {}, f"the arguments are not JSON: {one_line(error)}"
    if not isinstance(arguments, dict):
        arguments, problem = {}, "the arguments are not a JSON object"
    return ToolCall(
        name=name, arguments=arguments, call_id=str(call.get("id") or ""), problem=problem
    )
