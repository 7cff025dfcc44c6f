"""Formats: chats read back out of ids, documents that keep to their schema, and round trips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
import pytest
from atif_schema import check_atif
from real_chats import CHATS, real_chat
from tokenizer_folders import write_tokenizer

from patchgym.agent import (
    Agent,
    Observation,
    Opening,
    RolloutLimits,
    ScriptedPolicy,
    ToolCall,
    ToolSpec,
    Trajectory,
    rollout,
)
from patchgym.agent.chat import ChatTokenizer, encode_prompt, encode_reply, find_family
from patchgym.agent.scaffolds import ScaffoldConfig, make_agent
from patchgym.rewards import Reward, Verdict
from patchgym.trainer.config import (
    EnvironmentSection,
    ModelSection,
    RunConfig,
    RunSection,
)
from patchgym.trainer.errors import UserError
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.formats import (
    ChatShape,
    FormatError,
    SftSequence,
    export_run,
    import_file,
    sft_sequence,
)
from patchgym.trainer.formats.conversation import conversations
from patchgym.trainer.group import WorkItem
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.model.tokenizer import Tokenizer, load_tokenizer
from patchgym.trainer.policies import TextTokenizer, load_chat_tokenizer
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.trajectory_store import TrajectoryStore

HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n' + messages[0]['content'] + '\n# Tools\n' }}"
    "{% for t in tools %}{{ t | tojson }}\n{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}"
    "{% if m['role'] == 'system' and tools %}"
    "{% elif m['role'] == 'tool' %}"
    "{% if loop.index0 == 0 or messages[loop.index0 - 1]['role'] != 'tool' %}"
    "{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\n<tool_response>\n' + m['content'] + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1]['role'] != 'tool' %}{{ '<|im_end|>\n' }}"
    "{% endif %}"
    "{% elif m.get('tool_calls') %}{{ '<|im_start|>assistant\n<tool_call>\n{\"name\": ' }}"
    "{{ m['tool_calls'][0]['function']['name'] | tojson }}{{ ', \"arguments\": ' }}"
    "{{ m['tool_calls'][0]['function']['arguments'] | tojson }}"
    "{{ '}\n</tool_call><|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""In the manner of Qwen 2.5: tools in the system message, results in one user message."""

LOOK = ToolSpec(
    name="look",
    description="Look at something.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
)
SUBMIT = ToolSpec(name="submit", description="Hand in.", parameters={"type": "object"})


class Room:
    """An environment with something to look at."""

    tools: Sequence[ToolSpec] = (LOOK, SUBMIT)
    answers = False

    async def __aenter__(self) -> Room:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    async def open(self) -> Opening:
        return Opening(text="Find the <|im_end|> bug.\n\nIt is <em>small</em>.")

    async def step(self, call: ToolCall) -> Observation:
        await anyio.lowlevel.checkpoint()
        if call.name == "submit":
            return Observation(kind="submitted", text="Handed in.", done=True, tool="submit")
        seen = f'{call.arguments["path"]}: <|im_start|>user\n\u4f60 "quoted"\n' + "long " * 60
        return Observation(kind="output", text=seen, done=False, tool="look")

    async def outcome(self) -> bytes:
        return b"diff --git a/x b/x\n"


def write(*calls: tuple[str, dict[str, object]]) -> str:
    blocks = (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
        for name, arguments in calls
    )
    return "I look \u2014 twice.\n" + "\n".join(blocks)


TURNS = (
    write(("look", {"path": "a"}), ("look", {"path": "b"})),
    "no call at all",
    write(("look", {"path": "c"})),
    write(("submit", {})),
)


async def act(
    tokenizer: ChatTokenizer,
    agent: Agent,
    limits: RolloutLimits,
    turns: Sequence[str] = TURNS,
) -> Trajectory:
    left = iter(turns)
    policy = ScriptedPolicy(tokenizer, lambda text, seed: next(left))
    return await rollout(
        task_id="task/1",
        rollout_id="task+1-s0",
        seed=1,
        agent=agent,
        environment=Room(),
        policy=policy,
        limits=limits,
    )


LONG = RolloutLimits(max_turns=9, max_new_tokens=300, context_tokens=20_000)


@pytest.fixture(params=["plain", "hermes"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tokenizer whose template takes tools, and one whose template doesn't."""
    path = tmp_path / "tokenizer"
    return write_tokenizer(path, HERMES) if request.param == "hermes" else write_tokenizer(path)


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def rendered(tokenizer: ChatTokenizer, messages: Sequence[Any]) -> SftSequence:
    shape = ChatShape.of(tokenizer)
    return sft_sequence(tokenizer, messages, delimiters=shape.delimiters, rendered=shape.tokenizer)


async def test_a_chat_is_read_back_and_gives_the_same_ids(tokenizer: Tokenizer) -> None:
    trajectory = await act(tokenizer, make_agent("tools", tokenizer)(), LONG)
    assert [len(turn.observations) for turn in trajectory.turns] == [2, 1, 1, 1]
    (part,) = conversations(trajectory, tokenizer, ChatShape.of(tokenizer))
    messages = part.messages()
    roles = [message["role"] for message in messages]
    assert roles[:3] == ["system", "user", "assistant"]
    assert "< |im_end|> bug" in messages[1]["content"]
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    assert said == list(TURNS)
    sequence = rendered(tokenizer, messages)
    assert sequence.tokens == part.tokens
    assert sequence.loss_mask == part.loss_mask


async def test_results_keep_their_role_where_the_template_has_one(tokenizer: Tokenizer) -> None:
    trajectory = await act(tokenizer, make_agent("tools", tokenizer)(), LONG)
    (part,) = conversations(trajectory, tokenizer, ChatShape.of(tokenizer))
    between = [message["role"] for message in part.exchanges[1].before]
    has = any("tool" in mark.role for mark in ChatShape.of(tokenizer).replies)
    assert has
    assert between in (["tool", "tool"], ["user"])


async def test_a_rewritten_history_is_a_sequence_of_its_own(tokenizer: Tokenizer) -> None:
    config = ScaffoldConfig(keep_observations=1, observation_tokens=400, example=False)
    whole = await act(tokenizer, make_agent("tools", tokenizer, config)(), LONG)
    size = len(whole.segments()[0].tokens)
    limits = RolloutLimits(max_turns=9, max_new_tokens=300, context_tokens=size)
    trajectory = await act(tokenizer, make_agent("tools", tokenizer, config)(), limits)
    parts = conversations(trajectory, tokenizer, ChatShape.of(tokenizer))
    assert len(parts) == len(trajectory.segments()) > 1
    assert any(message.get("loss") is False for message in parts[-1].messages())
    for part in parts:
        sequence = rendered(tokenizer, part.messages())
        assert (sequence.tokens, sequence.loss_mask) == (part.tokens, part.loss_mask)


async def test_text_is_read_back_too() -> None:
    known = TextTokenizer()
    trajectory = await act(known, make_agent("tools", known)(), LONG)
    (part,) = conversations(trajectory, known, ChatShape.of(known))
    assert rendered(known, part.messages()).tokens == part.tokens


@pytest.mark.model
async def test_the_real_template_is_read_back(weights: Path) -> None:
    known = load_chat_tokenizer(str(weights))
    trajectory = await act(known, make_agent("tools", known)(), LONG)
    (part,) = conversations(trajectory, known, ChatShape.of(known))
    sequence = rendered(known, part.messages())
    assert (sequence.tokens, sequence.loss_mask) == (part.tokens, part.loss_mask)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHATS, "smollm2"])
async def test_templates_of_real_models_are_read_back(name: str) -> None:
    """Each family's own call format, in turns of one call: some templates take no second."""
    known = real_chat(name)
    write = find_family(known).format.write
    paths = ("a", "c")
    calls = [write(ToolCall(name="look", arguments={"path": path})) for path in paths]
    turns = (calls[0], "no call at all", calls[1], write(ToolCall(name="submit")))
    trajectory = await act(known, make_agent("tools", known)(), LONG, turns)
    assert (len(trajectory.turns), trajectory.stop_reason) == (4, "submitted")
    (part,) = conversations(trajectory, known, ChatShape.of(known))
    if known.decode(known.encode("a")) == "a":  # some vocabularies put a space before a first word
        sequence = rendered(known, part.messages())
        assert (sequence.tokens, sequence.loss_mask) == (part.tokens, part.loss_mask)
    if part.messages()[0].get("rendered"):
        with pytest.raises(FormatError, match="rendered for another model's tokenizer"):
            sft_sequence(known, part.messages(), rendered="other")


def test_a_template_that_can_not_be_read_says_so(tmp_path: Path) -> None:
    loses = "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    with pytest.raises(FormatError, match="drops or changes messages"):
        ChatShape.of(load_tokenizer(write_tokenizer(tmp_path / "a", loses)))
    bare = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    with pytest.raises(FormatError, match="no control token"):
        ChatShape.of(load_tokenizer(write_tokenizer(tmp_path / "b", bare)))


def test_how_a_message_began_and_ended_stays_out_of_the_loss(tokenizer: Tokenizer) -> None:
    sequence = sft_sequence(
        tokenizer,
        [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "AB", "prefill": "A", "finish": "stop"},
            {"role": "user", "content": "v"},
            {"role": "assistant", "content": "C", "loss": False},
            {"role": "user", "content": "w"},
            {"role": "assistant", "content": "D"},
            {"role": "user", "content": "not answered"},
        ],
    )
    learned = [t for t, keep in zip(sequence.tokens, sequence.loss_mask, strict=True) if keep]
    assert learned == [*tokenizer.encode("B"), *tokenizer.encode("D"), tokenizer.end_of_turn]
    prompt = encode_prompt(tokenizer, [{"role": "user", "content": "u"}], opening="A")
    assert sequence.tokens[: len(prompt)] == prompt
    reply = encode_reply(tokenizer, tokenizer.encode("B")[-1], [{"role": "user", "content": "v"}])
    start = len(prompt) + 1
    assert sequence.tokens[start : start + len(reply)] == reply


USER = {"role": "user", "content": "u"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER], "no message is the assistant's"),
        ([{"role": "assistant", "content": "a"}], "begins the conversation"),
        ([USER, {"role": "assistant", "content": "a"}] * 2, ""),
        ([USER, *[{"role": "assistant", "content": "a"}] * 2], "follows another"),
        ([USER, {"role": "narrator", "content": "a"}], "has the role 'narrator'"),
        ([USER, {"role": "assistant", "content": None}], "has no text"),
        ([USER, {"role": "assistant", "content": "a", "prefill": "b"}], "does not begin with"),
        ([USER, {"role": "assistant", "content": "<|im_end|>"}], "spells the control token"),
        ([USER, {"role": "assistant", "content": "a", "loss": False}], "nothing in it"),
    ],
)
def test_conversations_that_make_no_sense(
    tokenizer: Tokenizer, messages: list[Any], words: str
) -> None:
    if not words:
        assert rendered(tokenizer, messages).tokens
        return
    with pytest.raises(FormatError, match=words):
        rendered(tokenizer, messages)


@pytest.fixture
async def run(tokenizer: Tokenizer, folder: Path, tmp_path: Path) -> RunFolder:
    """A run with a resolved rollout, one that is not, and one without a turn."""
    made = create_run(
        RunConfig(
            run=RunSection(folder=str(tmp_path / "runs"), name="made"),
            model=ModelSection(path=str(folder)),
            environment=EnvironmentSection(use="repository"),
        )
    )
    good = await act(tokenizer, make_agent("tools", tokenizer)(), LONG)
    async with Ledger(made.ledger) as ledger:
        recorder = Recorder(ledger, TrajectoryStore(made.trajectories), FailureBudgets())
        for number, status in enumerate(("resolved", "unresolved", "unknown")):
            turns = good.turns if status != "unknown" else ()
            trajectory = Trajectory(
                rollout_id=f"r{number}", task_id=f"task/{number}", seed=number, turns=turns,
                stop_reason="submitted" if turns else "policy_failed", outcome=good.outcome,
            )  # fmt: skip
            await recorder.rollout("after", item(number), trajectory, reward(status))
        await ledger.flush()
    return made


def item(number: int) -> WorkItem:
    from patchgym.datasets.task import bundled_tasks

    task = bundled_tasks("train")[number]
    return WorkItem(
        rollout_id=f"r{number}", group_id="g", task=task, member=0, attempt=0, seed=number
    )


def reward(status: Any) -> Reward:
    total = {"resolved": 1.0, "unresolved": 0.0}.get(status)
    return Reward(total=total, scores=(), verdict=Verdict(status=status, evidence="log"))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_chat_out_and_in_gives_the_same_ids(
    run: RunFolder, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for tokens in (False, True):
        export = export_run(run, "chat", tmp_path / "c.jsonl", tokens=tokens)
        assert (export.written, list(export.skipped)) == (2, ["r2"])
        assert export.skipped["r2"] == "it has no turn"
        rows = lines(export.out)
        assert [row["resolved"] for row in rows] == [True, False]
        assert ("tokens" in rows[0]) == tokens
        result = import_file(export.out, "chat", tmp_path / "sft.jsonl", tokenizer)
        assert (result.sequences, result.exact, result.bad) == (2, 2 * tokens, {})
        (segment,) = TrajectoryStore(run.trajectories).read("r0").trajectory.segments()
        for row in lines(result.out):
            assert row["tokens"] == list(segment.tokens)
            assert row["loss_mask"] == [int(each) for each in segment.loss_mask]
    only = export_run(run, "chat", tmp_path / "only.jsonl", only_resolved=True)
    assert (only.written, only.skipped) == (1, {})


async def test_atif_keeps_to_the_schema_and_to_the_ids(
    run: RunFolder, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    export = export_run(run, "atif", tmp_path / "atif")
    assert export.written == 2
    document = json.loads((tmp_path / "atif" / "r0.trajectory.json").read_text())
    check_atif(document)
    steps = document["steps"]
    assert [step["source"] for step in steps] == ["system", "user"] + ["agent"] * 4
    assert len(steps[2]["tool_calls"]) == len(steps[2]["observation"]["results"]) == 2
    assert steps[3]["observation"]["results"][0].get("source_call_id") is None
    assert "prompt_token_ids" not in steps[2]["metrics"]
    with_ids = export_run(run, "atif", tmp_path / "atif.jsonl", tokens=True)
    for row in lines(with_ids.out):
        check_atif(row)
    result = import_file(with_ids.out, "atif", tmp_path / "sft.jsonl", tokenizer)
    assert (result.sequences, result.exact) == (2, 2)
    (segment,) = TrajectoryStore(run.trajectories).read("r0").trajectory.segments()
    assert lines(result.out)[0]["tokens"] == list(segment.tokens)
    assert lines(result.out)[0]["loss_mask"] == [int(each) for each in segment.loss_mask]
    again = import_file(tmp_path / "atif", "atif", tmp_path / "sft2.jsonl", tokenizer)
    assert (again.sequences, again.exact, again.bad) == (2, 0, {})
    learned = [t for t, keep in zip(*_arrays(again.out), strict=True) if keep]
    sampled = [t for t, keep in zip(segment.tokens, segment.loss_mask, strict=True) if keep]
    assert learned == sampled


def _arrays(path: Path) -> tuple[list[int], list[int]]:
    row = lines(path)[0]
    return row["tokens"], row["loss_mask"]


async def test_traj_has_the_keys_of_swe_agent(run: RunFolder, tmp_path: Path) -> None:
    export_run(run, "traj", tmp_path / "traj")
    document = json.loads((tmp_path / "traj" / "r0.traj").read_text())
    assert set(document) == {"environment", "trajectory", "history", "info", "replay_config"}
    step = document["trajectory"][0]
    assert set(step) == {
        "action", "observation", "response", "state", "thought", "execution_time", "query",
        "extra_info",
    }  # fmt: skip
    assert step["action"] == 'look {"path": "a"}\nlook {"path": "b"}'
    assert step["thought"] == "I look \u2014 twice."
    assert [entry["role"] for entry in step["query"]] == ["system", "user"]
    assert document["info"]["exit_status"] == "submitted"
    assert document["info"]["submission"].startswith("diff --git")
    assert document["info"]["model_stats"]["api_calls"] == 4


async def test_predictions_are_read_by_the_evaluation(run: RunFolder, tmp_path: Path) -> None:
    from patchgym.rewards.evaluation import read_predictions

    export = export_run(run, "predictions", tmp_path / "p.jsonl")
    predictions = read_predictions(export.out)
    assert export.written == 3
    assert len(predictions.ids) == 3
    assert next(iter(predictions.by_task.values())).patch == b"diff --git a/x b/x\n"
    assert export_run(run, "predictions", export.out, only_resolved=True).written == 1
    assert export_run(run, "predictions", export.out, sample=1).written == 0


async def test_flags_that_make_no_sense(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="traj has no place for ids"):
        export_run(run, "traj", tokens=True)
    with pytest.raises(UserError, match="can't be written"):
        export_run(run, "chat", run.config / "x.jsonl")
    with pytest.raises(UserError, match="no such file"):
        export_run(run, "chat", tmp_path / "x.jsonl", tokenizer="gone")


BAD = (
    ("{", "not JSON"),
    ("[]", "not a JSON object"),
    ('{"messages": []}', "no list of messages"),
    ('{"messages": ["x"]}', "a message is no object"),
    ('{"messages": [{"role": "user", "content": "u"}]}', "no message is the assistant's"),
    (json.dumps({"trainable": False, "messages": [USER]}), "not for training"),
    (
        json.dumps({"messages": [USER, {"role": "assistant", "tool_calls": [{}]}]}),
        "a tool call has no name",
    ),
)


def test_bad_rows_are_named_by_their_line(tokenizer: Tokenizer, tmp_path: Path) -> None:
    good = json.dumps({"messages": [USER, {"role": "assistant", "content": "a"}]})
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join([good, "", *(line for line, _ in BAD), good]))
    result = import_file(source, "chat", tmp_path / "out.jsonl", tokenizer)
    assert result.sequences == 2
    assert list(result.bad) == [f"{source}:{number}" for number in range(3, 3 + len(BAD))]
    for reason, (_, words) in zip(result.bad.values(), BAD, strict=True):
        assert words in reason
    with pytest.raises(UserError, match="No such file"):
        import_file(tmp_path / "gone", "chat", tmp_path / "out.jsonl", tokenizer)


def test_tools_that_were_called_elsewhere_are_written_as_this_model_writes_them(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    call = {"function": {"name": "look", "arguments": '{"path": "a"}'}}
    messages = [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "user", "content": "seen"},
        {"role": "assistant", "content": "Done."},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"messages": messages}))
    result = import_file(source, "chat", tmp_path / "out.jsonl", tokenizer)
    assert result.bad == {}
    text = tokenizer.decode(lines(result.out)[0]["tokens"])
    assert 'I look.\n<tool_call>\n{"name": "look", "arguments": {"path": "a"}}' in text


def foreign(**changes: Any) -> dict[str, Any]:
    """A document as another agent would write it."""
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "system", "message": "Be good."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Fix it."}]},
        {"step_id": 3, "source": "agent", "message": "OLD", "is_copied_context": True},
        {"step_id": 4, "source": "agent", "message": "PLAN", "llm_call_count": 0},
        {
            "step_id": 5, "source": "agent", "message": "I look.",
            "tool_calls": [
                {"tool_call_id": "1", "function_name": "look", "arguments": {"path": "a"}}
            ],
            "observation": {"results": [{"source_call_id": "1", "content": "seen"}]},
        },
        {"step_id": 6, "source": "agent", "message": "Done."},
    ]  # fmt: skip
    return {
        "schema_version": "ATIF-v1.7", "session_id": "s", "steps": steps,
        "agent": {"name": "other", "version": "1"}, **changes,
    }  # fmt: skip


def test_other_peoples_atif_is_read_as_its_specification_asks(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    source = tmp_path / "t.json"
    source.write_text(json.dumps(foreign()))
    result = import_file(source, "atif", tmp_path / "out.jsonl", tokenizer)
    assert (result.sequences, result.bad) == (1, {})
    row = lines(result.out)[0]
    assert row["source"] == "s"
    text = tokenizer.decode(row["tokens"], control=True)
    assert "OLD" not in text and "PLAN" not in text
    assert "<tool_response>\nseen\n</tool_response>" in text
    kept = [t for t, learned in zip(row["tokens"], row["loss_mask"], strict=True) if learned]
    said = tokenizer.decode(kept, control=True)
    call = '<tool_call>\n{"name": "look", "arguments": {"path": "a"}}\n</tool_call>'
    assert said == f"I look.\n{call}<|im_end|>Done.<|im_end|>"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": "2"}, "not ATIF-v1"),
        ({"steps": []}, "no list of steps"),
        ({"steps": [{"source": "tool"}]}, "no source that is"),
        ({"steps": [{"source": "user", "message": [{"type": "image"}]}]}, "no text"),
        ({"extra": {"patchgym": {"trainable": False}}}, "not for training"),
    ],
)
def test_bad_atif_is_said_to_be_bad(
    tokenizer: Tokenizer, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    source = tmp_path / "t.json"
    source.write_text(json.dumps(foreign(**changes)))
    result = import_file(source, "atif", tmp_path / "out.jsonl", tokenizer)
    assert result.sequences == 0
    assert words in result.bad[str(source)]
