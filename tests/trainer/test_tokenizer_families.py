"""Vocabularies of many families give the ids that their makers' tokenizers give."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_chats import real_chat, real_files, real_vocabulary
from tiny_model import CONTROL

from patchgym.agent.chat import TemplateRefusal
from patchgym.trainer.model import ModelError, Tokenizer
from patchgym.trainer.model.backends import byte_level_bpe, is_control
from patchgym.trainer.model.gguf import load_vocabulary
from patchgym.trainer.model.tokenizer import BYTE_OF_LETTER, load_tokenizer

VOCABULARIES = ("qwen2", "llama-bpe", "llama-spm", "gemma-4", "phi-3", "gpt-2", "starcoder")


@pytest.mark.model
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_are_those_of_the_makers_tokenizer(name: str) -> None:
    tokenizer = real_vocabulary(name)
    path = real_files() / f"ggml-vocab-{name}.gguf"
    # llama.cpp's own test: texts, and for each the ids of Hugging Face's tokenizer.
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40 and not any(lines[len(texts) :])
    for text, line in zip(texts, lines, strict=False):
        assert tokenizer.encode(text) == [int(token) for token in line.split()], text


@pytest.mark.model
@pytest.mark.parametrize("name", ["llama-bpe", "llama-spm", "gemma-4"])
def test_the_bytes_of_tokens_are_exact(name: str) -> None:
    tokenizer = real_vocabulary(name)
    prefix = " " if name == "llama-spm" else ""  # a space before the first word, as it was trained

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.characters(codec="utf-8", exclude_characters="\u2581"), max_size=30))
    def check(text: str) -> None:
        if not any(control in text for control in tokenizer.control_tokens()):
            expected = (prefix + text if text else "").encode()
            assert tokenizer.decode_bytes(tokenizer.encode(text)) == expected

    check()
    emoji = [tokenizer.token_bytes(token) for token in tokenizer.encode("🦫")]
    assert len(emoji) > 1 and b"".join(emoji).strip() == "🦫".encode()


@pytest.mark.model
def test_control_tokens_are_spelled_on_request() -> None:
    tokenizer = real_chat("qwen2.5")
    ids = tokenizer.encode("a<tool_call>b</tool_call><|im_end|>")
    assert len(ids) == 5
    assert tokenizer.decode(ids, control=True) == "a<tool_call>b</tool_call><|im_end|>"
    assert tokenizer.decode(ids) == "ab"
    assert {"<tool_call>", "<|im_end|>"} <= set(tokenizer.control_tokens())


def test_text_that_is_kept_whole_is_no_control_token() -> None:
    assert is_control("<tool_call>", "{{ '<tool_call>' }}") and not is_control("<tool_call>", None)
    assert not is_control("\n\n", "a\n\nb") and not is_control("<table>", "")
    assert is_control("[TOOL_CALLS]", "") and is_control("<|box|>", "") and is_control("</s>", "")


@pytest.mark.model
def test_the_turns_end_is_what_the_template_writes() -> None:
    assert real_chat("gemma2").decode([real_chat("gemma2").end_of_turn], control=True) == (
        "<end_of_turn>"
    )


def tokenizer_of(template: str) -> Tokenizer:
    backend = byte_level_bpe(tokens=[*CONTROL, *BYTE_OF_LETTER], merges=[], control=CONTROL)
    return Tokenizer(backend, template=template, end_of_turn=2, begin_of_text="<|im_start|>")


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ tools | tojson }}", '[{"z": "é<\'>", "a": null}]'),
        ("{{ tools[0] | tojson(indent=2) }}", '{\n  "z": "é<\'>",\n  "a": null\n}'),
        ("{{ bos_token }}|{{ eos_token }}", "<|im_start|>|<|im_end|>"),
        ("{% for m in messages %}{% break %}{% endfor %}x", "x"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hi"),
        ("    {% if true %}\nx\n    {% endif %}\n", "x\n"),
        ("{{ strftime_now('%Y') }}", f"{datetime.now():%Y}"),
        ("{{ documents is none }} {{ enable_thinking is defined }}", "True False"),
    ],
)
def test_templates_are_rendered_as_hugging_face_does(template: str, text: str) -> None:
    tool = {"z": "é<'>", "a": None}
    assert tokenizer_of(template).render_chat([USER], tools=[tool]) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{% for x in nothing.at.all %}{% endfor %}",
        "{% broken",
        "{{ messages[0].__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ 'a' + 1 }}",
    ],
)
def test_what_a_template_refuses_is_one_kind_of_error(template: str) -> None:
    with pytest.raises(TemplateRefusal):
        tokenizer_of(template).render_chat([USER])


@pytest.mark.model
@pytest.mark.parametrize("name", ["llama-spm", "qwen2"])
def test_a_folder_of_another_family_comes_back(name: str, tmp_path: Path) -> None:
    known = real_vocabulary(name)
    known._backend.save(str(tmp_path / "tokenizer.json"))
    end = known.decode([known.end_of_turn], control=True)
    template = [
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "{{ messages[0].content }}" + end},
    ]
    config = {"eos_token": {"content": end}, "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 1]}))
    read = load_tokenizer(tmp_path)
    text = 'def café(x):\n\treturn "🙂"  # 文字'
    assert read.encode(text) == known.encode(text)
    assert read.decode(read.encode(text)) == known.decode(known.encode(text))
    assert read.end_ids >= {0, 1, known.end_of_turn}
    assert read.render_chat([USER]) == "Hi" + end


@pytest.mark.model
@pytest.mark.parametrize("kept", [0.0001, 0.3, 0.9, 0.999])
def test_a_truncated_vocabulary_is_named(kept: float, tmp_path: Path) -> None:
    data = (real_files() / "ggml-vocab-llama-spm.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ModelError, match=r"cut\.gguf: .*fetch"):
        load_vocabulary(tmp_path / "cut.gguf")


@pytest.mark.model
def test_a_vocabulary_of_another_kind_is_refused(tmp_path: Path) -> None:
    data = (real_files() / "ggml-vocab-gpt-2.gguf").read_bytes()
    (tmp_path / "odd.gguf").write_bytes(data.replace(b"gpt-2", b"gpt-9", 2))
    with pytest.raises(ModelError, match="tokenizer gpt2/gpt-9 is not supported"):
        load_vocabulary(tmp_path / "odd.gguf")
    with pytest.raises(ModelError, match="can't be read"):
        load_vocabulary(tmp_path / "missing.gguf")
