"""Tokenizers put together from a vocabulary: byte-level BPE and SentencePiece's two manners."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ModelError

if TYPE_CHECKING:
    import tokenizers

SPACE_LETTER = "\u2581"
"""How a vocabulary in SentencePiece's manner spells a space."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """How a byte-level vocabulary cuts text before it merges."""

    pattern: str | None = None
    """Regular expression of the pieces; None for GPT-2's own."""
    digits: bool = False
    """Each digit stands alone."""
    whole: bool = False
    """A piece that is in the vocabulary is taken as it is, whatever the merges say."""
    composed: bool = False
    """Text is brought to Unicode's NFC first."""


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_DIGITS = Splitting(digits=True)

_LLAMA3 = Splitting(
    pattern=rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",
    whole=True,
)
_QWEN2 = Splitting(
    pattern=rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",
    composed=True,
)
_TEKKEN = Splitting(
    pattern=rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}",
    whole=True,
)

SPLITTINGS: Mapping[str, Splitting] = {
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "gpt-2": Splitting(),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _TEKKEN,
}
"""Splitting rules that `byte_level_bpe` reproduces exactly, by llama.cpp's names."""


def byte_level_bpe(
    *,
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    control: Sequence[str],
    text: Sequence[str] = (),
    splitting: Splitting = _DIGITS,
) -> tokenizers.Tokenizer:
    """Byte-level BPE; SmolLM's splitting, single digits, unless told otherwise.

    `control` and `text` are tokens that are recognized whole; the latter are no special ones.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary = {token: place for place, token in enumerate(tokens)}
    model = models.BPE(vocab=vocabulary, merges=list(merges), ignore_merges=splitting.whole)
    backend = Tokenizer(model)
    own = splitting.pattern is None
    steps: list[pre_tokenizers.PreTokenizer] = []
    if splitting.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if splitting.composed:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    _add(backend, control, text)
    return backend


def sentencepiece_bpe(
    *,
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    control: Sequence[str],
    text: Sequence[str] = (),
    unknown: str | None,
    prefix: bool,
) -> tokenizers.Tokenizer:
    """BPE over characters with a letter for the space and bytes for what is in no token.

    `prefix` puts a space before the first word, as Llama 2 was trained.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {token: place for place, token in enumerate(tokens)}
    model = models.BPE(
        vocab=vocabulary,
        merges=list(merges),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_LETTER)]
    if prefix:
        steps.insert(0, normalizers.Prepend(SPACE_LETTER))
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_LETTER, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    _add(backend, control, text)
    return backend


def merges_by_score(
    tokens: Sequence[str], scores: Sequence[float], mergeable: Sequence[bool]
) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: every split of a token into two tokens,
    the best-scored token first. Only `mergeable` tokens take part."""
    place = {token: index for index, token in enumerate(tokens) if mergeable[index]}

    def splits(token: str) -> Iterator[tuple[int, int, str, str]]:
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in place and right in place:
                yield place[left], place[right], left, right

    order = sorted(place, key=lambda token: -scores[place[token]])
    return [(left, right) for token in order for _, _, left, right in sorted(splits(token))]


def _add(backend: tokenizers.Tokenizer, control: Sequence[str], text: Sequence[str]) -> None:
    from tokenizers import AddedToken

    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in text])


def spells_bytes(backend: tokenizers.Tokenizer) -> bool:
    """Whether tokens are spelled in the byte alphabet; the other manner spells characters.

    Raises ModelError for a decoder that is of neither manner: its tokens' bytes are not known.
    """
    described = _decoder_kinds(backend)
    if "ByteLevel" in described:
        return True
    if described & {"ByteFallback", "Metaspace"} or not described:
        return False
    raise ModelError(
        f"tokenizers decoded by {', '.join(sorted(described))} are not supported"
        " (only byte-level BPE and SentencePiece's manners)"
    )


def _decoder_kinds(backend: tokenizers.Tokenizer) -> frozenset[str]:
    decoder = backend.decoder
    if decoder is None:
        return frozenset()
    described = json.loads(decoder.__getstate__())
    parts = described.get("decoders") or [described]
    return frozenset(str(part.get("type")) for part in parts)


_MARKED = re.compile(r"<\|.*\|>|<\uff5c.*\uff5c>|\[/?[A-Z_]+\]|</?s>")


def is_control(spelling: str, template: str | None) -> bool:
    """Whether a token that its file doesn't call special works as one all the same.

    It does when it looks like one or when the chat template uses it (`<tool_call>`); a run of
    spaces or an HTML tag that a vocabulary keeps whole is text.
    """
    if not spelling.strip():
        return False
    return _MARKED.fullmatch(spelling) is not None or spelling in (template or "")
