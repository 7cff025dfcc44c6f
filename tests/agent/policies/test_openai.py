"""Chat endpoints: text in and out, retries within a deadline, and never for training."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from patchgym.agent import CharacterTokenizer, ScriptedPolicy
from patchgym.agent.policies import (
    OpenAIEndpoint,
    PolicyAnswerError,
    PolicyRefused,
    PolicyTimeout,
)
from patchgym.agent.policies.conformance_server import ConformanceServer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Chat:
    """Answers from a list of (status, answer), the last one for ever; keeps what it was asked."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        self.asked.append(body)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def server(self) -> ConformanceServer:
        script = ScriptedPolicy(CharacterTokenizer(), lambda text, seed: "")
        return ConformanceServer(script, routes={"/v1/chat/completions": self})


def said(content: str | None = "hi", finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": content, **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }


async def ask(chat: Chat, **options: Any) -> Any:
    async with chat.server() as server:
        async with OpenAIEndpoint(f"{server.url}/v1", "m", **options) as endpoint:
            return await endpoint.chat(HELLO, max_new_tokens=5, seed=1, stop=("x",))


async def test_a_message_and_its_counts_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY_OF_OURS", "secret")
    chat = Chat((200, said()))
    answer = await ask(chat, api_key_variable="A_KEY_OF_OURS")
    assert (answer.text, answer.finish, answer.tool_calls) == ("hi", "stop", ())
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 2)
    assert not hasattr(answer, "tokens") and not hasattr(answer, "logprobs")
    (body,) = chat.asked
    assert body == {
        "model": "m", "messages": HELLO, "max_tokens": 5, "temperature": 1.0, "seed": 1,
        "stop": ["x"],
    }  # fmt: skip


async def test_tool_calls_are_parsed_and_bad_ones_are_said_to_be_bad() -> None:
    calls = [
        {"id": "1", "function": {"name": "shell", "arguments": '{"command": "ls"}'}},
        {"id": "2", "function": {"name": "shell", "arguments": '{"command": '}},
        {"id": "3", "function": {"name": "shell", "arguments": "[1]"}},
    ]
    answer = await ask(Chat((200, said(None, "tool_calls", tool_calls=calls))))
    good, broken, listed = answer.tool_calls
    assert good.arguments == {"command": "ls"} and good.problem == ""
    assert broken.arguments == {} and "not JSON" in broken.problem
    assert listed.arguments == {} and "not a JSON object" in listed.problem


async def test_overload_and_errors_of_the_server_are_tried_again() -> None:
    busy = {"error": {"message": "slow down"}}
    chat = Chat((429, busy), (500, busy), (200, said()))
    assert (await ask(chat)).text == "hi"
    assert len(chat.asked) == 3


async def test_the_deadline_ends_the_tries_and_says_the_last_reason() -> None:
    chat = Chat((503, {"error": {"message": "slow down"}}))
    with pytest.raises(PolicyTimeout, match="gave up after 1 s: .*status 503: slow down"):
        await ask(chat, turn_limit=1)
    assert 1 <= len(chat.asked) <= 3


async def test_a_refusal_is_not_tried_again() -> None:
    chat = Chat((401, {"error": {"message": "wrong key"}}))
    with pytest.raises(PolicyRefused, match="status 401: wrong key"):
        await ask(chat)
    assert len(chat.asked) == 1


@pytest.mark.parametrize("answer", [{}, {"choices": []}, said(finish="magic"), [], "text"])
async def test_another_form_is_a_clear_error(answer: Any) -> None:
    with pytest.raises(PolicyAnswerError):
        await ask(Chat((200, answer)))
