"""Files of conversations: what is read, what is learned of it, and what is dropped or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_model import byte_tokenizer
from tokenizer_folders import write_tokenizer

from patchgym.trainer.errors import UserError
from patchgym.trainer.formats import Reader
from patchgym.trainer.model.tokenizer import Tokenizer, load_tokenizer
from patchgym.trainer.policies import fingerprint
from patchgym.trainer.sft import (
    Gathered,
    gather,
    load_sft_config,
    pinned,
)

USER: dict[str, Any] = {"role": "user", "content": "Mend it."}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "def f():"},
    {"role": "user", "content": "And in?"},
    {"role": "assistant", "content": "x in y"},
]
VOCABULARY = 260


def write_rows(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def gathered(*sources: str | Path, **settings: str) -> Gathered:
    """What the sources come to for the byte tokenizer."""
    pairs = [("data.sources", json.dumps([str(source) for source in sources]))]
    pairs += [(key.replace("__", "."), value) for key, value in settings.items()]
    config = pinned(load_sft_config(None, pairs))
    return gather(config, byte_tokenizer(), vocabulary=VOCABULARY, on_source=lambda name: None)


def test_a_chat_is_learned_on_the_assistants_words_and_their_end_alone(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    found = gathered(write_rows(tmp_path / "chat.jsonl", {"messages": TALK}))
    ((sequence,),) = [each.sequences for each in found.examples]
    whole = tokenizer.encode(tokenizer.render_chat(TALK, add_generation_prompt=False))
    assert list(sequence.tokens) == whole[:-1], "but for the newline after the last end"
    learned: list[list[int]] = [[]]
    for token, keep in zip(sequence.tokens, sequence.loss_mask, strict=True):
        if keep:
            learned[-1].append(token)
        elif learned[-1]:
            learned.append([])
    spelled = [tokenizer.decode(part, control=True) for part in learned]
    assert spelled == ["def f():<|im_end|>", "x in y<|im_end|>"]


def test_stored_ids_are_never_tokenized_again(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    i, n = tokenizer.encode("i")[0], tokenizer.encode("n")[0]
    assert tokenizer.encode("in") != [i, n], "these ids are not how the tokenizer spells it"
    tokens: dict[str, Any] = {
        "tokenizer": fingerprint(tokenizer),
        "ids": [1, i, n, 2],
        "loss_mask": [0, 1, 1, 1],
    }
    row: dict[str, Any] = {"messages": TALK, "tokens": tokens, "task_id": "t"}
    (one,) = gathered(write_rows(tmp_path / "chat.jsonl", row)).examples
    assert (one.sequences[0].tokens, one.exact, one.task) == ((1, i, n, 2), True, "t")
    other = {**row, "tokens": {**tokens, "tokenizer": "another"}}
    (one,) = gathered(write_rows(tmp_path / "chat.jsonl", other)).examples
    assert not one.exact, "another model's ids: the messages are rendered"


def test_atif_documents_keep_their_ids_and_their_rewritten_histories(tmp_path: Path) -> None:
    mark = fingerprint(byte_tokenizer())

    def step(prompt: list[int], sampled: list[int]) -> dict[str, object]:
        metrics = {"prompt_token_ids": prompt, "completion_token_ids": sampled}
        return {"source": "agent", "message": "", "metrics": metrics, "llm_call_count": 1}

    document = {
        "schema_version": "ATIF-v1.8",
        "steps": [
            {"source": "user", "message": "Mend it."},
            step([1, 5], [6, 2]),
            step([1, 5, 6, 2, 9], [7, 2]),
            step([1, 8], [7, 2]),
        ],
        "extra": {"patchgym": {"tokenizer": mark, "task_id": "t"}},
    }
    (tmp_path / "atif").mkdir()
    (tmp_path / "atif" / "r.trajectory.json").write_text(json.dumps(document))
    (one,) = gathered(tmp_path / "atif").examples
    assert [each.tokens for each in one.sequences] == [(1, 5, 6, 2, 9, 7, 2), (1, 8, 7, 2)]
    assert one.sequences[0].loss_mask == (False, False, True, True, False, True, True)
    assert (one.task, one.exact) == ("t", True)


def test_what_an_import_wrote_is_read_and_belongs_to_its_tokenizer(tmp_path: Path) -> None:
    row = {"tokens": [1, 7, 8], "loss_mask": [0, 1, 1], "source": "x"}
    mine = {**row, "tokenizer": fingerprint(byte_tokenizer())}
    (one,) = gathered(write_rows(tmp_path / "sft.jsonl", mine)).examples
    assert (one.sequences[0].loss_mask, one.exact) == ((False, True, True), True)
    path = write_rows(tmp_path / "sft.jsonl", mine, {**row, "tokenizer": "beef"})
    with pytest.raises(UserError, match=r"sft\.jsonl:2: ids of the tokenizer beef, the model's is"):
        gathered(path)


def test_an_unreadable_line_is_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "chat.jsonl", {"messages": TALK})
    good = path.read_bytes()
    for bad, words in (
        (b"{nope\n", "not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b"\xff\n", "UTF-8"),
    ):
        path.write_bytes(good + b"\n" + bad)
        with pytest.raises(UserError, match=rf"chat\.jsonl:3: .*{words}"):
            gathered(path)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "oracle", "content": "x"}, TALK[2]], "message 1 has the role 'oracle'"),
        ([USER], "no message is the assistant's"),
        ([USER, {**TALK[2], "content": "<|im_end|>"}], "spells the control token <|im_end|>"),
        ([USER, {**TALK[2], "loss": False}], "nothing in it is to be learned"),
    ],
)
def test_a_conversation_that_cant_be_used_is_dropped_and_named(
    messages: list[object], why: str, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "chat.jsonl", {"messages": messages}, {"messages": TALK})
    found = gathered(path)
    assert len(found.examples) == 1
    assert why in found.dropped[f"{path}:1"]
    alone = write_rows(tmp_path / "chat.jsonl", {"messages": messages})
    with pytest.raises(UserError, match=r"no conversation to train on: all 1 were dropped"):
        gathered(alone)


def test_what_the_template_refuses_is_dropped_with_its_words(tmp_path: Path) -> None:
    template = "{{ raise_exception('no, thanks') }}"
    tokenizer = load_tokenizer(write_tokenizer(tmp_path / "tokenizer", template))
    path = write_rows(tmp_path / "chat.jsonl", {"messages": TALK})
    config = pinned(load_sft_config(None, [("data.sources", json.dumps([str(path)]))]))
    with pytest.raises(UserError, match=r"since the chat template refuses: no, thanks"):
        gather(config, tokenizer, vocabulary=VOCABULARY, on_source=lambda name: None)


def test_what_is_too_long_for_a_row_is_named_and_not_cut(tmp_path: Path) -> None:
    long = {"messages": [USER, {"role": "assistant", "content": "x" * 200}]}
    path = write_rows(tmp_path / "chat.jsonl", long, {"messages": TALK})
    found = gathered(path, learner__row_tokens="[64, 128]")
    assert len(found.examples) == 1
    size = len(byte_tokenizer().encode("Mend it.")) + 200
    assert "tokens, the longest row 128: raise learner.row_tokens" in found.dropped[f"{path}:1"]
    assert int(found.dropped[f"{path}:1"].split()[2]) > size


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    mark = fingerprint(byte_tokenizer())
    row = {"tokens": [1, 9000], "loss_mask": [0, 1], "tokenizer": mark}
    with pytest.raises(UserError, match=r"sft\.jsonl:1: token id 9000 is outside .* of 260"):
        gathered(write_rows(tmp_path / "sft.jsonl", row))


def test_sources_that_are_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    for sources, words in (
        ((), "give --data"),
        (("nowhere",), "neither a file, nor a run"),
        ((tmp_path / "empty.jsonl",), "the sources are empty"),
        ((tmp_path / "folder",), "no JSON file in it"),
        (("gold:bundled:other",), "no bundled set"),
    ):
        with pytest.raises(UserError, match=words):
            gathered(*sources)


def test_real_tool_calls_are_written_as_the_model_writes_them(tmp_path: Path) -> None:
    call = {"function": {"name": "look", "arguments": '{"path": "a"}'}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "seen"},
        {"role": "assistant", "content": "done"},
    ]
    (one,) = gathered(write_rows(tmp_path / "chat.jsonl", {"messages": messages})).examples
    (sequence,) = one.sequences
    said = byte_tokenizer().decode(
        [t for t, keep in zip(sequence.tokens, sequence.loss_mask, strict=True) if keep]
    )
    assert '"look"' in said
    assert said.endswith("done")
    assert "seen" not in said


def test_a_reader_is_made_for_one_tokenizer() -> None:
    tokenizer: Tokenizer = byte_tokenizer()
    reader = Reader.of(tokenizer)
    assert reader.fingerprint == fingerprint(tokenizer)
    assert "<|im_end|>" in reader.delimiters
