"""The tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .backends import SPLITTINGS, byte_level_bpe, merges_by_score, sentencepiece_bpe
from .errors import ModelError
from .gguf_fields import Fields
from .tokenizer import Tokenizer, make_tokenizer

if TYPE_CHECKING:
    import tokenizers


def read_tokenizer(fields: Fields) -> Tokenizer:
    """The tokenizer that the metadata describes."""
    vocabulary = _Vocabulary(fields)
    try:
        backend = vocabulary.backend()
    except ModelError:
        raise
    # The library raises a bare Exception for merges that don't fit the vocabulary.
    except Exception as error:
        raise ModelError(
            f"{fields.path}: damaged tokenizer ({error}); delete it and fetch the model again"
        ) from error
    count = len(vocabulary.tokens)
    end = fields.integer("tokenizer.ggml.eos_token_id")
    begin, *others = (
        fields.get(f"tokenizer.ggml.{which}_token_id") for which in ("bos", "eot", "eom")
    )
    ends = [end, *(token for token in others if isinstance(token, int))]
    known = ends if begin is None else [*ends, begin]
    if not all(isinstance(token, int) and 0 <= token < count for token in known):
        raise ModelError(f"{fields.path}: special token ids outside the vocabulary; fetch it again")
    template = fields.get("tokenizer.chat_template")
    return make_tokenizer(
        backend,
        template=template if isinstance(template, str) else None,
        begin="" if begin is None else vocabulary.tokens[begin],
        end=vocabulary.tokens[end],
        ends=ends,
    )


_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Of `gguf.TokenType`, here so that importing this module does not import gguf."""

_PADDING = re.compile(r"\[PAD\d+\]")
"""A converter's name for ids that the model has and its tokenizer doesn't."""


class _Vocabulary:
    """Tokens with their kinds, and how they are put together."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.tokens = [str(token) for token in fields.items("tokenizer.ggml.tokens")]
        given = fields.get("tokenizer.ggml.token_type")
        kinds = given if isinstance(given, list) else []
        self._kinds = [*kinds, *[_NORMAL] * (len(self.tokens) - len(kinds))]

    def backend(self) -> tokenizers.Tokenizer:
        model = self._fields.text("tokenizer.ggml.model")
        pre = self._fields.get("tokenizer.ggml.pre")
        if model == "gpt2" and pre in SPLITTINGS:
            return byte_level_bpe(
                tokens=self.tokens,
                merges=self._merges(),
                control=self._of_kind(_CONTROL),
                text=self._of_kind(_USER_DEFINED),
                splitting=SPLITTINGS[pre],
            )
        if model == "llama":
            return self._sentencepiece(self._scored_merges(), prefix=True)
        if model == "gemma4":
            return self._sentencepiece(self._merges(), prefix=False)
        raise ModelError(
            f"{self._fields.path}: tokenizer {model}/{pre} is not supported (only llama, gemma4,"
            f" gpt2/{', gpt2/'.join(SPLITTINGS)}); use the model's Hugging Face folder"
        )

    def _sentencepiece(
        self, merges: list[tuple[str, str]], *, prefix: bool
    ) -> tokenizers.Tokenizer:
        unknown = self._of_kind(_UNKNOWN)
        wanted = self._fields.get("tokenizer.ggml.add_space_prefix")
        return sentencepiece_bpe(
            tokens=self.tokens,
            merges=merges,
            control=[*unknown[:1], *self._of_kind(_CONTROL)],
            text=self._of_kind(_USER_DEFINED),
            unknown=unknown[0] if unknown else None,
            prefix=prefix if wanted is None else bool(wanted),
        )

    def _of_kind(self, kind: int) -> list[str]:
        """Tokens of a kind, empty ones and the converter's padding left out."""
        marked = zip(self.tokens, self._kinds, strict=False)
        return [t for t, k in marked if k == kind and t and not _PADDING.fullmatch(t)]

    def _merges(self) -> list[tuple[str, str]]:
        parted = [str(m) for m in self._fields.items("tokenizer.ggml.merges")]
        # A merge's own first character may be a space; the one between its halves comes after it.
        cut = [merge.find(" ", 1) for merge in parted]
        return [(merge[:at], merge[at + 1 :]) for merge, at in zip(parted, cut, strict=True)]

    def _scored_merges(self) -> list[tuple[str, str]]:
        scores = [float(score) for score in self._fields.items("tokenizer.ggml.scores")]
        if len(scores) != len(self.tokens):
            raise ModelError(
                f"{self._fields.path}: scores don't fit the vocabulary; fetch it again"
            )
        return merges_by_score(self.tokens, scores, [kind == _NORMAL for kind in self._kinds])
