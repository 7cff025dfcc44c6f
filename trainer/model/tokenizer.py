"""Text to token ids and back, exactly as the model was trained; chats by the model's template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.agent.chat.tokenizer import TemplateRefusal

from .backends import (
    BYTE_OF_LETTER,
    SPACE_LETTER,
    byte_level_bpe,
    is_control,
    spells_bytes,
)
from .chat_template import ChatTemplate
from .errors import ModelError

if TYPE_CHECKING:
    import tokenizers

__all__ = ["BYTE_OF_LETTER", "Tokenizer", "byte_level_bpe", "load_tokenizer"]

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """BPE, byte-level or in SentencePiece's manner, with control tokens and a chat template.

    Safe to share between threads. Implements `patchgym.agent.chat.ChatTokenizer`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        template: str | None,
        end_of_turn: int,
        end_of_text: int | None = None,
        begin_of_text: str = "",
        end_of_sequence: str | None = None,
        ends: Iterable[int] = (),
        template_variables: Mapping[str, object] | None = None,
    ) -> None:
        """`template` is Jinja text; `end_of_turn`, `end_of_text` and `ends` are ids that end a
        turn; `begin_of_text` and `end_of_sequence` are what the template calls `bos_token` and
        `eos_token` (the latter is the spelling of `end_of_turn` unless given); further
        `template_variables`, such as `enable_thinking`, go to the template as they are."""
        self._backend = backend
        self._made = (
            template,
            end_of_turn,
            end_of_text,
            begin_of_text,
            end_of_sequence,
            tuple(ends),
            dict(template_variables or {}),
        )
        self._template = None if template is None else ChatTemplate(template)
        self._byte_level = spells_bytes(backend)
        self.end_of_turn = end_of_turn
        found = (end_of_turn, end_of_text, *self._made[5])
        self.end_ids = frozenset(token for token in found if token is not None)
        added = backend.get_added_tokens_decoder()
        self._added = {token: str(entry.content) for token, entry in added.items()}
        self._control = {
            token: str(entry.content)
            for token, entry in added.items()
            if entry.special or token in self.end_ids or is_control(str(entry.content), template)
        }
        end = self._added.get(end_of_turn, "") if end_of_sequence is None else end_of_sequence
        self._variables = {
            "bos_token": begin_of_text,
            "eos_token": end,
            **(template_variables or {}),
        }

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[object, ...]]:
        """As what it was made of: neither the backend's caches nor a compiled template travel."""
        return _remade, (self._backend.to_str(), *self._made)

    @property
    def vocabulary(self) -> int:
        """Ids run from 0 to this, exclusive."""
        return self._backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; control tokens written in it are recognized, none is added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int], *, control: bool = False) -> str:
        """Text of `tokens`, broken UTF-8 replaced; control tokens are spelled with `control`,
        left out without."""
        if not control:
            return self.decode_bytes(tokens).decode("utf-8", errors="replace")
        pieces = (self._spelled(token) for token in tokens)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """The bytes that `tokens` spell, control tokens left out; exact where text is not."""
        return b"".join(self.token_bytes(token) for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, which need not be whole characters; none for a control token.

        In a vocabulary in SentencePiece's manner a word's leading space is part of its token, the
        first word's too.
        """
        if token in self._control:
            return b""
        if token in self._added:
            return self._added[token].encode()
        spelling = self._backend.id_to_token(token)
        if spelling is None:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.vocabulary}")
        if self._byte_level:
            return b"".join(_letter_bytes(letter) for letter in spelling)
        byte = _BYTE_FALLBACK.fullmatch(spelling)
        if byte is not None:
            return bytes([int(byte[1], 16)])
        return spelling.replace(SPACE_LETTER, " ").encode()

    def control_tokens(self) -> Sequence[str]:
        """The control tokens' spellings."""
        return tuple(self._control.values())

    def is_control(self, token: int) -> bool:
        """Whether `token` is a control token."""
        return token in self._control

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Text of a conversation by the model's own template, as Hugging Face renders it.

        Raises ModelError without a template, TemplateRefusal for what the template won't take.
        """
        if self._template is None:
            raise ModelError("the model has no chat template; use one tuned to follow instructions")
        return self._template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            variables=self._variables,
        )

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Ids of a conversation: `encode` of `render_chat`."""
        return self.encode(self.render_chat(messages, add_generation_prompt=add_generation_prompt))

    def _spelled(self, token: int) -> bytes:
        return self._added[token].encode() if token in self._added else self.token_bytes(token)


def _remade(
    backend: str,
    template: str | None,
    end_of_turn: int,
    end_of_text: int | None,
    begin_of_text: str,
    end_of_sequence: str | None,
    ends: tuple[int, ...],
    variables: dict[str, object],
) -> Tokenizer:
    import tokenizers

    return Tokenizer(
        tokenizers.Tokenizer.from_str(backend),
        template=template,
        end_of_turn=end_of_turn,
        end_of_text=end_of_text,
        begin_of_text=begin_of_text,
        end_of_sequence=end_of_sequence,
        ends=ends,
        template_variables=variables,
    )


def _letter_bytes(letter: str) -> bytes:
    """What a letter of a byte-level spelling stands for; one outside the alphabet is itself."""
    byte = BYTE_OF_LETTER.get(letter)
    return letter.encode() if byte is None else bytes([byte])


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: `tokenizer.json` and `tokenizer_config.json`.

    What ends a turn is `eos_token`, what `generation_config.json` names beside it, and whatever
    the chat template puts after an assistant's words.
    """
    import tokenizers

    file = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    # The library raises a bare Exception for whatever it can't parse.
    except Exception as error:
        raise ModelError(f"{file}: no usable tokenizer there: {error}") from error
    settings = _settings(folder / "tokenizer_config.json")
    end = _spelling(settings.get("eos_token"))
    end_id = None if end is None else backend.token_to_id(end)
    if end is None or end_id is None:
        raise ModelError(f"{folder}: tokenizer_config.json names no eos_token of the vocabulary")
    return make_tokenizer(
        backend,
        template=_template(folder, settings),
        begin=_spelling(settings.get("bos_token")) or "",
        end=end,
        ends=(end_id, *_generation_ends(folder / "generation_config.json")),
    )


def make_tokenizer(
    backend: tokenizers.Tokenizer,
    *,
    template: str | None,
    begin: str,
    end: str,
    ends: Sequence[int],
) -> Tokenizer:
    """A tokenizer whose `end_of_turn` is what the template itself puts after an assistant's words.

    `ends` are ids that end a turn, the end of sequence (spelled `end`) first.
    """

    def made(end_of_turn: int) -> Tokenizer:
        return Tokenizer(
            backend,
            template=template,
            end_of_turn=end_of_turn,
            end_of_text=backend.token_to_id("<|endoftext|>"),
            begin_of_text=begin,
            end_of_sequence=end,
            ends=ends,
        )

    first = made(ends[0])
    closing = None if template is None else _closing_token(first)
    return first if closing in (None, ends[0]) else made(closing)


_PROBE = "patchgym:probe"


def _closing_token(tokenizer: Tokenizer) -> int | None:
    """The control token that the template puts right after an assistant's words, if it does."""
    messages = [{"role": "user", "content": "."}, {"role": "assistant", "content": _PROBE}]
    try:
        text = tokenizer.render_chat(messages, add_generation_prompt=False)
    except TemplateRefusal:
        return None
    _, found, tail = text.rpartition(_PROBE)
    ids = tokenizer.encode(tail.lstrip()) if found else []
    return ids[0] if ids and tokenizer.is_control(ids[0]) else None


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template: of its own file, or in the settings, where it may be one of several."""
    separate = folder / "chat_template.jinja"
    if separate.exists():
        return separate.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict)
        }
        template = named.get("tool_use") or named.get("default")
    return template if isinstance(template, str) else None


def _generation_ends(file: Path) -> tuple[int, ...]:
    """The ids that `generation_config.json` ends a turn at; none without the file."""
    if not file.exists():
        return ()
    ends = _settings(file).get("eos_token_id")
    found = ends if isinstance(ends, list) else [ends]
    return tuple(token for token in found if isinstance(token, int))


def _settings(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: can't be read as JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ModelError(f"{file}: not a JSON object")
    return settings


def _spelling(token: object) -> str | None:
    """A special token's text: it is written plainly or as an object with a `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
