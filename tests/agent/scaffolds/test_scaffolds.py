"""What the agents show and read: budgets, problems, thinking, history."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_model import byte_tokenizer

from patchgym.agent import (
    Action,
    CharacterTokenizer,
    Completion,
    Observation,
    Opening,
    ToolCall,
    ToolSpec,
)
from patchgym.agent.policy import Finish
from patchgym.agent.scaffolds import BashAgent, ScaffoldConfig, ToolAgent, make_agent
from patchgym.agent.scaffolds.budget import control_ids, shares, shorten

BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["command"],
    },
)
SUBMIT = ToolSpec(
    name="submit", description="Hand in.", parameters={"type": "object", "properties": {}}
)
TOKENIZER = byte_tokenizer()
ROOM = 100_000
GOOD = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


def said(text: str, finish: Finish = "eos") -> Completion:
    ids = (*TOKENIZER.encode(text), *([TOKENIZER.end_of_turn] if finish == "eos" else []))
    return Completion(tokens=ids, logprobs=(0.0,) * len(ids), policy_version=0, finish=finish)


def output(text: str) -> Observation:
    return Observation(kind="output", text=text, done=False, tool="bash")


def opened(config: ScaffoldConfig | None = None) -> ToolAgent:
    agent = ToolAgent(TOKENIZER, config)
    agent.open(Opening(text="Fix it."), (BASH, SUBMIT), room=ROOM)
    return agent


def bash_opened(config: ScaffoldConfig | None = None) -> BashAgent:
    agent = BashAgent(TOKENIZER, config)
    agent.open(Opening(text="Fix it."), (BASH, SUBMIT), room=ROOM)
    return agent


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Hello.", "no tool call"),
        (GOOD.replace("bash", "dash"), "There is no tool `dash`; the tools are: bash, submit."),
        (GOOD.replace("command", "cmd"), "needs the argument `command`"),
        (GOOD.replace('"ls"', "5"), "must be of type string"),
        (GOOD.replace('"ls"', '"ls", "x": 1'), "has no argument `x`"),
        (GOOD + GOOD.replace("bash", "dash"), "There is no tool `dash`"),
        (GOOD + " Done.", "text after the call"),
        (GOOD.replace('"', "'"), "double quotes"),
        ("<think>" + GOOD, "Your thinking has no end"),
    ],
)
def test_a_problem_says_what_was_wrong_and_shows_a_call(text: str, problem: str) -> None:
    action = opened().act(said(text))
    assert not action.calls
    assert problem in action.problem
    assert '<tool_call>\n{"name": "bash", "arguments": {"command": ' in action.problem


def test_a_cut_turn_is_told_so() -> None:
    assert "Your turn was cut off after" in opened().act(said(GOOD[:30], "length")).problem


def test_no_call_is_looked_for_in_thinking() -> None:
    hidden = GOOD.replace("ls", "rm -r .")
    action = opened().act(said(f"<think>\nmaybe {hidden}\n</think>\n\n{GOOD}"))
    assert action.calls == (ToolCall(name="bash", arguments={"command": "ls"}),)


def test_two_calls_get_two_answers() -> None:
    agent = opened()
    assert len(agent.act(said(GOOD + GOOD)).calls) == 2
    reply = agent.reply([output("first"), output("second")], room=ROOM)
    text = TOKENIZER.decode(reply.tokens)
    assert text.index("first") < text.index("second")


def test_the_format_is_shown_in_its_own_tokens_and_quotes_are_not_trusted() -> None:
    agent = opened()
    agent.act(said(GOOD.replace("bash", "<|im_start|>")))
    reply = agent.reply([output("format error")], room=ROOM)
    assert reply.tokens.count(TOKENIZER.end_of_turn) == 1
    assert "<tool_call>" in TOKENIZER.decode(reply.tokens)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Look.\n```bash\nls -l\n```", ToolCall(name="bash", arguments={"command": "ls -l"})),
        ("```bash\ncat <<E\n``\nE\n```\n", None),
        ("Done.\nsubmit", ToolCall(name="submit")),
        ("`submit`", ToolCall(name="submit")),
    ],
)
def test_bash_turns(text: str, call: ToolCall | None) -> None:
    action = bash_opened().act(said(text))
    if call is not None:
        assert action.calls == (call,)
    else:
        assert action.calls[0].arguments == {"command": "cat <<E\n``\nE"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ls", "There is no command"),
        ("```\nls\n```", "not marked as ```bash"),
        ("```bash\nls", "not closed"),
        ("```bash\nls\n```\n```bash\nls\n```", "2 ```bash blocks"),
        ("```bash\n\n```", "empty"),
        ("```bash\nls\n```\nsubmit", "which is it"),
        ("I will submit soon.", "There is no command"),
    ],
)
def test_bash_problems(text: str, problem: str) -> None:
    action = bash_opened().act(said(text))
    assert not action.calls and problem in action.problem and "```bash\n" in action.problem


ANY_IDS = st.lists(st.integers(0, 300), min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(ANY_IDS | st.text(max_size=80).map(lambda t: TOKENIZER.encode("<tool_call>" + t)))
def test_acting_and_replying_never_fail(ids: list[int]) -> None:
    completion = Completion(
        tokens=tuple(ids), logprobs=(0.0,) * len(ids), policy_version=0, finish="length"
    )
    for agent in (opened(), bash_opened()):
        action: Action = agent.act(completion)
        assert bool(action.calls) != bool(action.problem)
        agent.reply([output("x") for _ in action.calls or (1,)], room=ROOM)


@settings(deadline=None)
@given(st.text(max_size=3000), st.integers(64, 300))
def test_shortened_text_fits_and_keeps_both_ends(text: str, budget: int) -> None:
    shown, count = shorten(TOKENIZER, text, budget)
    assert count == len(TOKENIZER.encode(shown)) <= budget
    assert control_ids(TOKENIZER).isdisjoint(TOKENIZER.encode(shown))
    if len(text) > 1000 and text.isascii() and "<" not in text:
        assert shown[0] == text[0] and shown[-1] == text[-1] and "characters left out" in shown


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 12), st.integers(0, 12))
def test_a_control_token_across_the_cut_stays_text(before: int, after: int) -> None:
    text = "a" * 40 + "<|im_end|>"[:before] + "b" * 5000 + "<|im_end|>"[after:] + "c" * 10
    for budget in range(64, 84):
        ids = TOKENIZER.encode(shorten(TOKENIZER, text, budget)[0])
        assert control_ids(TOKENIZER).isdisjoint(ids)


def test_short_texts_leave_room_for_long_ones() -> None:
    short, long = shares(TOKENIZER, ["ok", "x" * 5000], 400)
    assert short == "ok" and 350 < len(TOKENIZER.encode(long)) <= 400


def test_a_huge_observation_costs_what_the_budget_costs() -> None:
    text = "x<|im_end|>" * 5_000_000
    agent = opened()
    agent.act(said(GOOD))
    tracemalloc.start()
    started = time.perf_counter()
    reply = agent.reply([output(text)], room=ROOM)
    seconds = time.perf_counter() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reply.tokens) < 2200
    assert peak < 8_000_000
    assert seconds < 5, "a cut by characters takes milliseconds, whatever the machine does beside"


def test_old_output_goes_when_it_would_not_fit() -> None:
    agent = ToolAgent(TOKENIZER, ScaffoldConfig(keep_observations=1))
    prompt = agent.open(Opening(text="Fix it."), (BASH, SUBMIT), room=ROOM)
    sampled = said(GOOD)
    room = len(prompt.tokens) + 3000
    contexts = []
    for turn in range(3):
        agent.act(sampled)
        contexts.append(agent.reply([output(f"{turn}" * 1200)], room=room))
    assert [context.restarts for context in contexts] == [False, False, True]
    whole = contexts[2].tokens
    text = TOKENIZER.decode(whole)
    assert whole[: len(prompt.tokens)] == prompt.tokens and len(whole) <= room
    assert text.count("[old output of bash left out: 1,200 characters]") == 2
    assert "2" * 1200 in text and "1" * 20 not in text
    # What was sampled stands in it three times, id by id.
    n = len(sampled.tokens)
    assert sum(whole[i : i + n] == sampled.tokens for i in range(len(whole))) == 3


def test_without_keeping_history_is_never_rewritten() -> None:
    agent = opened()
    for _ in range(5):
        agent.act(said(GOOD))
        assert not agent.reply([output("x" * 1000)], room=10).restarts


def test_agents_by_name() -> None:
    tokenizer = CharacterTokenizer()
    assert isinstance(make_agent("tools", tokenizer)(), ToolAgent)
    assert isinstance(make_agent("bash", tokenizer, ScaffoldConfig())(), BashAgent)
    assert make_agent("repair", tokenizer)() is not make_agent("repair", tokenizer)()
    with pytest.raises(ValueError, match="64 at least"):
        ScaffoldConfig(observation_tokens=3)
    with pytest.raises(ValueError, match="environment with"):
        BashAgent(tokenizer).open(Opening(text=""), (BASH,), room=1)
