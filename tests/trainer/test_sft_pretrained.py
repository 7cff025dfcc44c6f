"""Supervised training of the real model: the masks are the template's, and a few steps help."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pytest

from patchgym.trainer.model.tokenizer import Tokenizer
from patchgym.trainer.policies import load_chat_tokenizer
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.settings import override_pairs
from patchgym.trainer.sft import (
    SftConfig,
    gather,
    load_sft_config,
    pinned,
    read_summary,
    train,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

CHATS: Sequence[Sequence[Mapping[str, str]]] = (
    (
        {"role": "system", "content": "You mend Python functions."},
        {"role": "user", "content": "`half` returns x * 2. Mend it."},
        {"role": "assistant", "content": "def half(x):\n    return x / 2"},
    ),
    (
        {"role": "user", "content": "`last` returns items[0]."},
        {"role": "assistant", "content": "```python\ndef last(items):\n    return items[-1]\n```"},
        {"role": "user", "content": "And `first`, na\u00efvely?\n\nIt returns items[1]."},
        {"role": "assistant", "content": "def first(items):\n    return items[0]"},
    ),
    (
        {"role": "user", "content": "`add` subtracts."},
        {"role": "assistant", "content": "def add(a, b):\n    return a + b"},
        {"role": "user", "content": "Thanks."},
    ),
)


def settings(path: Path, *words: str) -> SftConfig:
    path.write_text("".join(json.dumps({"messages": list(chat)}) + "\n" for chat in CHATS))
    pairs = [("data.sources", json.dumps([str(path)])), *override_pairs(words)]
    return pinned(load_sft_config(None, pairs))


def by_offsets(
    tokenizer: Tokenizer, chat: Sequence[Mapping[str, Any]]
) -> tuple[list[int], list[bool]]:
    """Ids and mask by a rendering of the whole chat with Jinja itself, and by places in its text.

    Learned is what lies inside an assistant's content or in the end that follows it.
    """
    assert tokenizer._template is not None
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    until = max(place for place, each in enumerate(chat) if each["role"] == "assistant") + 1
    text = environment.from_string(tokenizer._template.text).render(
        messages=chat[:until], add_generation_prompt=False
    )
    spans = []
    at = 0
    for each in chat[:until]:
        start = text.index(each["content"], at)
        at = start + len(each["content"])
        if each["role"] == "assistant":
            spans.append((start, at + len("<|im_end|>")))
    coded = tokenizer._backend.encode(text, add_special_tokens=False)
    mask = [any(a <= first < b for a, b in spans) for first, _ in coded.offsets]
    while not mask[-1]:  # what stands after the last words is no part of the sequence
        mask.pop()
    return list(coded.ids[: len(mask)]), mask


def test_masks_are_the_assistants_words_in_a_rendering_of_the_whole(
    weights: Path, tmp_path: Path
) -> None:
    tokenizer = load_chat_tokenizer(str(weights))
    config = settings(tmp_path / "chat.jsonl", "--model.path", str(weights))
    found = gather(config, tokenizer, vocabulary=49152, on_source=lambda name: None)
    assert [len(each.sequences) for each in found.examples] == [1, 1, 1]
    for each, chat in zip(found.examples, CHATS, strict=True):
        ids, mask = by_offsets(tokenizer, chat)
        assert list(each.sequences[0].tokens) == ids
        assert list(each.sequences[0].loss_mask) == mask


def test_a_few_steps_lower_the_loss(weights: Path, tmp_path: Path) -> None:
    config = settings(
        tmp_path / "chat.jsonl",
        "--model.path", str(weights), "--run.folder", str(tmp_path), "--run.name", "few",
        "--data.heldout", "0", "--train.batch", "3", "--train.epochs", "3",
        "--learner.row-tokens", "[64, 128]", "--learner.learning-rate", "5e-5",
    )  # fmt: skip
    assert train(config) == 0
    losses = [row["loss"] for row in read_summary(RunFolder(tmp_path / "few"))["history"]]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]
    assert losses[2] < 0.7 * losses[0]
