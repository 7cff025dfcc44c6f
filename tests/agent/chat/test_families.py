"""Families are found by asking templates; replies continue a conversation as templates would."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_chats import ALL_CHATS, real_chat

from patchgym.agent import CharacterTokenizer, ToolCall
from patchgym.agent.chat import (
    FamilyName,
    Message,
    encode_reply,
    find_family,
    neutralize,
)
from patchgym.agent.scaffolds.budget import control_ids
from patchgym.trainer.model import Tokenizer

pytestmark = pytest.mark.model

# family, whether the template lists tools, takes results, takes a system message
EXPECTED = {
    "qwen2.5": ("hermes", True, True, True),
    "qwen3": ("hermes", True, True, True),
    "qwen3-coder": ("qwen-coder", True, True, True),
    "smollm3": ("described", False, False, True),
    "hermes3": ("hermes", True, True, True),
    "llama3.1": ("llama", True, True, True),
    "llama3.2": ("llama", True, True, True),
    "gemma2": ("described", False, False, False),
    "mistral-nemo": ("mistral", True, True, True),
    "mistral-small": ("mistral-call-id", True, True, True),
    "devstral": ("mistral-args", True, True, True),
    "smollm2": ("described", False, False, True),
}


@pytest.mark.parametrize("name", ALL_CHATS)
def test_a_template_says_its_family(name: str) -> None:
    family = find_family(real_chat(name))
    found = (family.name, family.shows_tools, family.tool_role, family.system)
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", ALL_CHATS)
def test_an_example_is_read_as_it_was_written(name: str) -> None:
    tokenizer = real_chat(name)
    family = find_family(tokenizer)
    call = ToolCall(name="bash", arguments={"command": "cat <<'E'\n\"é\\\nE"})
    ids = tokenizer.encode(family.format.write(call))
    (read,) = family.format.read(tokenizer.decode(ids, control=True), {})
    assert (read.name, read.arguments) == (call.name, call.arguments)


def test_a_family_can_be_named() -> None:
    name: FamilyName = "llama"
    family = find_family(real_chat("qwen2.5"), name)
    # Its template lists tools in another format: they are described by us instead.
    assert (family.format.name, family.shows_tools, family.tool_role) == ("llama", False, False)
    assert find_family(CharacterTokenizer()).name == "described"


def results(name: str, contents: list[str]) -> list[Message]:
    if not EXPECTED[name][2]:
        return [{"role": "user", "content": "\n".join(contents)}]
    return [
        {"role": "tool", "name": "bash", "tool_call_id": f"12345678{place}", "content": content}
        for place, content in enumerate(contents)
    ]


def controls(tokenizer: Tokenizer, ids: tuple[int, ...] | list[int]) -> list[int]:
    known = control_ids(tokenizer)
    return [token for token in ids if token in known]


@pytest.mark.parametrize("name", ALL_CHATS)
@pytest.mark.parametrize("count", [1, 2])
def test_pieces_make_the_conversation_that_the_template_renders(name: str, count: int) -> None:
    tokenizer = real_chat(name)
    first: list[Message] = [{"role": "user", "content": "Fix it."}]
    words, told = "I look first.", results(name, ["a.py", "b.py"][:count])
    sampled = (*tokenizer.encode(words), tokenizer.end_of_turn)
    # Hermes 3's template is for tools alone: it refuses a chat without a list of them.
    tools = () if name == "hermes3" else None
    prompt = tokenizer.render_chat(first, tools=tools, add_generation_prompt=True)
    reply = encode_reply(tokenizer, sampled[-1], told)
    pieces = (*tokenizer.encode(prompt), *sampled, *reply)
    turns: list[Message] = [*first, {"role": "assistant", "content": words}, *told]
    whole = tokenizer.render_chat(turns, tools=tools, add_generation_prompt=True)
    if name == "mistral-nemo":  # words that follow a control token get a space of their own
        assert controls(tokenizer, pieces) == controls(tokenizer, tokenizer.encode(whole))
    else:
        assert tokenizer.decode(pieces, control=True) == whole
        assert list(pieces) == tokenizer.encode(whole)


@pytest.mark.parametrize("name", ALL_CHATS)
def test_a_turn_is_ended_once_however_it_ended(name: str) -> None:
    tokenizer = real_chat(name)
    told = results(name, ["a.py"])
    cut = encode_reply(tokenizer, tokenizer.encode("x")[-1], told)
    assert cut[0] == tokenizer.end_of_turn
    for end in tokenizer.end_ids:
        assert encode_reply(tokenizer, end, told) == cut[1:]


def hostile(name: str) -> st.SearchStrategy[str]:
    """Text of whole and halved control tokens, near misses and anything else."""
    tokens = real_chat(name).control_tokens()
    token = st.sampled_from([*tokens[:40], *tokens[-40:]])
    half = st.builds(lambda t, at: t[: at % (len(t) + 1)], token, st.integers(0, 20))
    rest = st.builds(lambda t, at: t[at % (len(t) + 1) :], token, st.integers(0, 20))
    odd = st.sampled_from(["<", "|>", "\u212a", "\u037e", "\ud800", "\0", "\\", '"', "<<|", " "])
    return st.lists(token | half | rest | odd | st.text(max_size=5), max_size=30).map("".join)


@pytest.mark.parametrize("name", ALL_CHATS)
def test_output_never_becomes_a_control_token(name: str) -> None:
    tokenizer = real_chat(name)
    structure = {
        count: controls(tokenizer, encode_reply(tokenizer, 0, results(name, ["x"] * count)))
        for count in (1, 2)
    }

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(hostile(name), min_size=1, max_size=2))
    def check(texts: list[str]) -> None:
        quiet = [neutralize(tokenizer, text) for text in texts]
        reply = encode_reply(tokenizer, 0, results(name, quiet))
        assert controls(tokenizer, reply) == structure[len(texts)]

    check()


@pytest.mark.parametrize("name", ["llama3.1", "mistral-nemo", "mistral-small", "devstral"])
def test_tools_are_shown_in_the_prompt_and_not_again(name: str) -> None:
    tokenizer = real_chat(name)
    told: Message = {"role": "user", "content": "no call"}
    text = tokenizer.decode(encode_reply(tokenizer, 0, [told]), control=True)
    assert "no call" in text and "AVAILABLE_TOOLS" not in text and "functions" not in text
