"""Text goes to ids and comes back unchanged; chats follow the model's own template."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import byte_tokenizer

from patchgym.trainer.model import ModelError, Tokenizer, load_model
from patchgym.trainer.model.tokenizer import BYTE_OF_LETTER, byte_level_bpe, load_tokenizer

TOKENIZER = byte_tokenizer()


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    if not any(control in text for control in TOKENIZER.control_tokens()):
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_letters_stand_for_each_byte_once() -> None:
    assert sorted(BYTE_OF_LETTER.values()) == list(range(256))
    assert bytes(BYTE_OF_LETTER[letter] for letter in "ĠdefĊ") == b" def\n"


def test_control_tokens_are_recognized_and_spell_nothing() -> None:
    ids = TOKENIZER.encode("a<|im_end|>b")
    assert ids[1] == TOKENIZER.end_of_turn and len(ids) == 3
    assert TOKENIZER.decode(ids) == "ab"
    assert TOKENIZER.token_bytes(TOKENIZER.end_of_turn) == b""


def test_a_character_cut_in_half_is_exact_in_bytes_and_replaced_in_text() -> None:
    whole = TOKENIZER.encode("né")
    assert TOKENIZER.decode_bytes(whole[:2]) == "né".encode()[:2]
    assert TOKENIZER.decode(whole[:2]) == "n�"


def test_an_id_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(ValueError, match="token id 9999 is outside the vocabulary of 260"):
        TOKENIZER.decode([9999])


def test_digits_stand_alone_even_where_a_merge_would_join_them() -> None:
    letters = list(BYTE_OF_LETTER)
    backend = byte_level_bpe(tokens=[*letters, "12"], merges=[("1", "2")], control=[])
    tokenizer = Tokenizer(backend, template=None, end_of_turn=0)
    assert len(tokenizer.encode("12")) == 2
    with pytest.raises(ModelError, match="no chat template"):
        tokenizer.render_chat([])


def test_chat_follows_the_template() -> None:
    text = TOKENIZER.render_chat([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.encode_chat([{"role": "user", "content": "Hi"}])[0] == 1


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json: no usable tokenizer there"):
        load_tokenizer(tmp_path)


@pytest.mark.model
def test_the_real_tokenizer(weights: Path) -> None:
    _, _, tokenizer = load_model(weights)
    # Ids that Hugging Face's tokenizer of SmolLM2-135M-Instruct gives for the same text.
    assert tokenizer.encode("Hello world") == [19556, 905]
    assert len(tokenizer.encode("2024")) == 4
    text = 'def café(x):\n\treturn "🙂 %d" % 31337  # 文字\n\n\n'
    assert tokenizer.decode(tokenizer.encode(text)) == text
    turn = tokenizer.encode("<|im_start|>user\nHi<|im_end|>")
    assert (turn[0], turn[-1]) == (1, 2) == (1, tokenizer.end_of_turn)
    assert tokenizer.end_ids == {0, 2}
    chat = tokenizer.render_chat([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert chat.startswith("<|im_start|>system\n") and chat.endswith("<|im_start|>assistant\n")
