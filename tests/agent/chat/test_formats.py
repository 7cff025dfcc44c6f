"""Calls in every format: read when they are right, named when they are not, never an error."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from patchgym.agent.action import ToolCall, ToolSpec
from patchgym.agent.chat import FORMATS, Malformed

EDIT = ToolSpec(
    name="edit",
    description="Edit.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        "required": ["path"],
    },
)
TOOLS = {"edit": EDIT}
CALL = ToolCall(name="edit", arguments={"path": "a.py", "line": 3})
H, J = '{"name": "edit", "arguments": {"path": "a.py"}}', '{"name": "edit", "parameters": {}}'


@pytest.mark.parametrize("name", FORMATS)
def test_written_calls_are_read(name: str) -> None:
    known = FORMATS[name]
    for text in (known.write(CALL), f"I edit it.\n{known.write(CALL)}\n"):
        (read,) = known.read(text, TOOLS)
        assert (read.name, read.arguments) == (CALL.name, CALL.arguments)


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("hermes", f"<tool_call>{H}</tool_call>\n<tool_call>{H}</tool_call>", 2),
        ("hermes", f"<tool_call>[{H}, {H}]</tool_call>", 2),
        ("hermes", f"<tool_call>{H.replace('a.py', '</tool_call>')}</tool_call>", 1),
        ("llama", f"<|python_tag|>{J}; {J};{J}", 3),
        ("llama", f"Let me see.\n{J}", 1),
        ("mistral", f"[TOOL_CALLS] [{H}, {H}]", 2),
        ("mistral-args", '[TOOL_CALLS]edit[ARGS]{"path": "a"}[TOOL_CALLS]edit[ARGS]{}', 2),
        ("qwen-coder", "<tool_call><function=edit></function></tool_call>", 1),
    ],
)
def test_other_ways_to_write_calls(name: str, text: str, count: int) -> None:
    assert [call.name for call in FORMATS[name].read(text, TOOLS)] == ["edit"] * count


def test_call_ids_are_read_where_they_are_well_formed() -> None:
    text = "[TOOL_CALLS]edit[CALL_ID]abcDEF123[ARGS]{}"
    assert FORMATS["mistral"].read(text, TOOLS)[0].id == "abcDEF123"
    listed = '[TOOL_CALLS][{"name": "edit", "arguments": {}, "id": "<|im_end|>"}]'
    assert FORMATS["mistral"].read(listed, TOOLS)[0].id == ""


def test_coder_arguments_stand_as_they_are() -> None:
    text = (
        '<tool_call>\n<function=edit>\n<parameter=path>\n</parameter> "x"\n\n</parameter>\n'
        "<parameter=line>\n7\n</parameter>\n</function>\n</tool_call>"
    )
    (read,) = FORMATS["qwen-coder"].read(text, TOOLS)
    assert read.arguments == {"path": '</parameter> "x"\n', "line": 7}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("hermes", "I am done.", "no tool call"),
        ("hermes", f"```json\n{H}\n```", "code fence"),
        ("hermes", H, "not marked as one"),
        ("hermes", f"<tool_call>```json\n{H}\n```</tool_call>", "code fence"),
        ("hermes", f"<tool_call>{H}", "not closed"),
        ("hermes", f"<tool_call>{H} ok</tool_call>", "other text"),
        ("hermes", f"<tool_call>{H}</tool_call> Done!", "text after the call"),
        ("hermes", f"<tool_call>{H.replace(chr(34), chr(39))}</tool_call>", "double quotes"),
        ("hermes", f"<tool_call>{H[:-2]},}}}}</tool_call>", "no comma before"),
        ("hermes", '<tool_call>{"name": "edit", "arguments": {"a": True}}</tool_call>', "small"),
        ("hermes", '<tool_call>{"name": "edit", "arguments": {"a": "b\nc"}}</tool_call>', "\\n"),
        ("hermes", f"<tool_call>{H[:20]}</tool_call>", "broken"),
        ("hermes", "<tool_call>{}</tool_call>", 'no "name"'),
        ("hermes", f"<tool_call>{J}</tool_call>", 'you wrote "parameters"'),
        ("hermes", '<tool_call>{"name": "edit", "arguments": "x"}</tool_call>', "JSON object"),
        ("hermes", "<tool_call>[]</tool_call>", "empty"),
        ("hermes", '<tool_call>{"name": "e", "arguments": {}, "b": 1}</tool_call>', '"b" too'),
        ("hermes", '<tool_call>{"name": "e", "arguments": {"a": "\\ud800"}}</tool_call>', "half"),
        ("hermes", '<tool_call>{"name": "e", "arguments": {"a": NaN}}</tool_call>', "NaN"),
        ("hermes", '<tool_call>{"name": "e", "arguments": {"a": 1e999}}</tool_call>', "too large"),
        ("hermes", "<tool_call>" + "[" * 100_000 + "</tool_call>", "deeply"),
        ("llama", H, 'you wrote "arguments"'),
        ("llama", f"```json\n{J}\n```", "code fence"),
        ("llama", f"{J} Done.", "text after"),
        ("llama", "Hello.", "no tool call"),
        ("mistral", f"[TOOL_CALLS]{H}", "JSON list"),
        ("mistral", "[TOOL_CALLS][]", "empty"),
        ("mistral", f"[TOOL_CALLS][{H}] Done.", "text after"),
        ("mistral-args", "[TOOL_CALLS]edit {}", "a name and"),
        ("mistral-args", "[TOOL_CALLS]edit[ARGS][1]", "JSON object"),
        ("mistral-args", "edit it", "no tool call"),
        ("qwen-coder", "<tool_call>{}</tool_call>", "<function=NAME>"),
        ("qwen-coder", "<tool_call><function=edit><parameter=path>x", "not closed"),
    ],
)
def test_what_is_wrong_is_named(name: str, text: str, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        FORMATS[name].read(text, TOOLS)
    assert said in str(caught.value)


_PIECES = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
        "<function=edit>", "<parameter=path>", "</parameter>", "</function>", "```", "```json\n",
        '{"name": "edit", ', '"arguments": ', '"parameters": ', '{"path": "a"}', "{", "}", "[", "]",
        ",", ";", "'", '"', "\\", "\\ud800", "NaN", "1e999", "9" * 5000, "\n", " ", "\ud800", "\0",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(_PIECES | st.text(max_size=8), max_size=20).map("".join))
@example("[TOOL_CALLS]" + "[" * 50_000)
@example("<tool_call>" + '{"a":' * 50_000)
def test_any_text_is_read_or_malformed(text: str) -> None:
    for known in FORMATS.values():
        try:
            calls = known.read(text, TOOLS)
        except Malformed as error:
            assert str(error)
        else:
            assert calls
            assert all(isinstance(call.arguments, dict) and call.name for call in calls)
