"""Reads a GGUF file of the Llama family: its shape, its weights in float32, its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .assemble import LAYER_TENSORS, Array, assemble
from .backends import SPLITTINGS, byte_level_bpe, merges_by_score, sentencepiece_bpe
from .config import ModelConfig
from .decoder import Params
from .errors import ModelError
from .gguf_metadata import Value, read_metadata
from .tokenizer import Tokenizer, make_tokenizer

if TYPE_CHECKING:
    import tokenizers
    from gguf import GGUFReader

_MAGIC = b"GGUF"

_LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def load_gguf(path: Path) -> tuple[ModelConfig, Params, Tokenizer]:
    """Shape, float32 weights and tokenizer in the GGUF file `path`.

    Raises ModelError, in one line that names the file and what to do, when the file is missing,
    truncated, damaged, or not of the Llama architecture.
    """
    reader = _open(path)
    fields = _Fields(read_metadata(path), path)
    architecture = fields.text("general.architecture")
    if architecture != "llama":
        raise ModelError(
            f"{path}: architecture {architecture!r} is not supported; use a Llama-family GGUF"
        )
    config = _config(reader, fields)
    tensors = _Tensors(reader, config, path)
    return config, assemble(config, tensors.read, path), _tokenizer(fields)


def load_vocabulary(path: Path) -> Tokenizer:
    """The tokenizer alone of the GGUF file `path`, of any architecture, with or without weights.

    Raises ModelError, in one line, for a damaged file or a kind of vocabulary that isn't supported.
    """
    return _tokenizer(_Fields(read_metadata(path), path))


def _open(path: Path) -> GGUFReader:
    """The file, parsed; every way in which a damaged file shows itself becomes a ModelError."""
    import gguf

    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelError(f"{path}: can't be read ({error.strerror}); check the path") from error
    if magic != _MAGIC:
        raise ModelError(f"{path}: not a GGUF file; delete it and fetch the model again")
    try:
        return gguf.GGUFReader(path)
    # The reader walks a memory map by the offsets that it finds there, so that a damaged file
    # fails in whatever way those offsets lead to, out of memory included.
    except (ArithmeticError, LookupError, ValueError, TypeError, OSError, MemoryError) as error:
        raise ModelError(
            f"{path}: truncated or damaged GGUF ({type(error).__name__});"
            " delete it and fetch the model again"
        ) from error


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to the file's metadata."""

    values: Mapping[str, Value]
    path: Path

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def _typed(self, key: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, kinds):
            raise ModelError(f"{self.path}: metadata {key} is missing or of the wrong type")
        return value

    def text(self, key: str) -> str:
        return str(self._typed(key, str))

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self._typed(key, int, default))

    def number(self, key: str) -> float:
        return float(self._typed(key, (int, float)))

    def items(self, key: str) -> list[Any]:
        return list(self._typed(key, list))


def _config(reader: GGUFReader, fields: _Fields) -> ModelConfig:
    width = fields.integer("llama.embedding_length")
    heads = max(1, fields.integer("llama.attention.head_count"))
    if any(str(name).startswith("llama.rope.scaling") for name in reader.fields):
        raise ModelError(f"{fields.path}: scaled rotary embeddings are not supported")
    try:
        return ModelConfig(
            vocabulary=len(fields.items("tokenizer.ggml.tokens")),
            width=width,
            layers=fields.integer("llama.block_count"),
            heads=heads,
            kv_heads=fields.integer("llama.attention.head_count_kv", heads),
            head_dim=fields.integer("llama.rope.dimension_count", width // heads),
            ffn=fields.integer("llama.feed_forward_length"),
            rope_theta=fields.number("llama.rope.freq_base"),
            # The file holds a float32: 1e-05 is read back as 9.999999747378752e-06.
            eps=float(f"{fields.number('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            tied=all(tensor.name != "output.weight" for tensor in reader.tensors),
            context=fields.integer("llama.context_length"),
        )
    except ValueError as error:
        raise ModelError(f"{fields.path}: impossible shape: {error}") from error


class _Tensors:
    """The file's tensors under Hugging Face's names, dequantized and with rotation halves apart."""

    def __init__(self, reader: GGUFReader, config: ModelConfig, path: Path) -> None:
        self._path = path
        self._heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
        self._by_name = {tensor.name: tensor for tensor in reader.tensors}
        self._names = {
            "model.embed_tokens.weight": "token_embd.weight",
            "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight",
        }
        for layer in range(config.layers):
            for ours, theirs in LAYER_TENSORS.items():
                name = f"blk.{layer}.{_LAYER_NAMES[ours]}.weight"
                self._names[f"model.layers.{layer}.{theirs}.weight"] = name

    def read(self, name: str) -> Array:
        """The tensor in float32, [out, in]; KeyError when the file has none of that name."""
        import gguf

        tensor = self._by_name[self._names[name]]
        try:
            values: Array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            values = values.reshape([int(size) for size in reversed(tensor.shape)])
        except (ValueError, LookupError, NotImplementedError) as error:
            raise ModelError(f"{self._path}: tensor {tensor.name} is damaged: {error}") from error
        for part, heads in self._heads.items():
            if f".{part}." in tensor.name:
                return _separate_halves(values, heads)
        return values


def _separate_halves(weight: Array, heads: int) -> Array:
    """Undo llama.cpp's order of query and key rows [heads*D, d].

    It puts row i of a head's first half beside row i of the second; we rotate halves.
    """
    out, width = weight.shape
    pairs = weight.reshape(heads, out // heads // 2, 2, width)
    return pairs.transpose(0, 2, 1, 3).reshape(out, width)


def _tokenizer(fields: _Fields) -> Tokenizer:
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

    def __init__(self, fields: _Fields) -> None:
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
