"""Text to token ids and back, exactly as the model was trained; chats by the model's template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelError

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """Byte-level BPE with control tokens and a chat template; safe to share between threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        template: str | None,
        end_of_turn: int,
        end_of_text: int | None = None,
        begin_of_text: str = "",
    ) -> None:
        """`template` is Jinja text; `end_of_turn` and `end_of_text` are ids that end a turn."""
        self._backend = backend
        self._template = template
        self._begin_of_text = begin_of_text
        self.end_of_turn = end_of_turn
        ends = (end_of_turn, end_of_text)
        self.end_ids = frozenset(token for token in ends if token is not None)
        added = backend.get_added_tokens_decoder()
        self._control = {token: str(entry.content) for token, entry in added.items()}

    @property
    def vocabulary(self) -> int:
        """Ids run from 0 to this, exclusive."""
        return self._backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; control tokens written in it are recognized, none is added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, control tokens left out, broken UTF-8 replaced."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """The bytes that `tokens` spell, control tokens left out; exact where text is not."""
        return b"".join(self.token_bytes(token) for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, which need not be whole characters; none for a control token."""
        if token in self._control:
            return b""
        spelling = self._backend.id_to_token(token)
        if spelling is None:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.vocabulary}")
        return bytes(BYTE_OF_LETTER[letter] for letter in spelling)

    def control_tokens(self) -> Sequence[str]:
        """The control tokens' spellings."""
        return tuple(self._control.values())

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        """Text of a conversation of `{"role", "content"}` messages by the model's own template."""
        if self._template is None:
            raise ModelError("the model has no chat template; use one tuned to follow instructions")
        template = _template_environment().from_string(self._template)
        rendered: str = template.render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            bos_token=self._begin_of_text,
            eos_token=self._control.get(self.end_of_turn, ""),
        )
        return rendered

    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Ids of a conversation: `encode` of `render_chat`."""
        return self.encode(self.render_chat(messages, add_generation_prompt=add_generation_prompt))


def _template_environment() -> Any:
    """Jinja set up as chat templates expect it; sandboxed, since templates come with downloads."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)


def _byte_alphabet() -> dict[str, int]:
    """The letter by which byte-level BPE spells each byte, turned around.

    Printable bytes stand for themselves; the others take the letters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


BYTE_OF_LETTER = _byte_alphabet()
"""The byte that each letter of a token's spelling stands for."""


def byte_level_bpe(
    *, tokens: Sequence[str], merges: Sequence[tuple[str, str]], control: Sequence[str]
) -> tokenizers.Tokenizer:
    """SmolLM's tokenizer: byte-level BPE that splits numbers into single digits."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: place for place, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return backend


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: `tokenizer.json` and `tokenizer_config.json`."""
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
    if end_id is None:
        raise ModelError(f"{folder}: tokenizer_config.json names no eos_token of the vocabulary")
    template = settings.get("chat_template")
    separate = folder / "chat_template.jinja"
    if separate.exists():
        template = separate.read_text(encoding="utf-8")
    return Tokenizer(
        backend,
        template=template if isinstance(template, str) else None,
        end_of_turn=end_id,
        end_of_text=backend.token_to_id("<|endoftext|>"),
        begin_of_text=_spelling(settings.get("bos_token")) or "",
    )


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
