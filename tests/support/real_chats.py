"""Chat templates and vocabularies of real models, out of an sdist on PyPI; none is committed.

llama.cpp keeps templates and bare vocabularies for its own tests, and `llama-cpp-python`'s sdist
carries them. A family whose vocabulary isn't among them gets its control tokens added to a near
one (see `CHATS`): ids differ from the real model's then, structure does not.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from patchgym.datasets.cache import cache_dir
from patchgym.trainer.model.gguf import load_vocabulary
from patchgym.trainer.model.tokenizer import Tokenizer, make_tokenizer
from patchgym.trainer.model.weights import ensure_weights

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"""Of the sdist, 77 MB; llama.cpp and the package are MIT, each template has its model's licence."""

VOCABULARIES = ("qwen2", "llama-bpe", "llama-spm", "gemma-4", "phi-3", "gpt-2", "starcoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealChat:
    """A template, the vocabulary under it, and control tokens that this vocabulary lacks."""

    template: str
    vocabulary: str
    special: Sequence[str] = ()
    plain: Sequence[str] = ()
    """Recognized whole, but not special in the model's own files."""
    begin: str = ""
    end: str


_QWEN = ("<tool_call>", "</tool_call>")
_QWEN3 = (*_QWEN, "<tool_response>", "</tool_response>", "<think>", "</think>")
_MISTRAL = ("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]")
_MISTRAL3 = (*_MISTRAL, "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
_MISTRAL11 = (*_MISTRAL3, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]")
_LLAMA = ("<|eom_id|>", "<|python_tag|>")


def _qwen(template: str, plain: Sequence[str]) -> RealChat:
    return RealChat(template=template, vocabulary="qwen2", plain=plain, end="<|im_end|>")


def _llama(template: str) -> RealChat:
    return RealChat(
        template=template,
        vocabulary="llama-bpe",
        special=_LLAMA,
        begin="<|begin_of_text|>",
        end="<|eot_id|>",
    )


CHATS = {
    "qwen2.5": _qwen("Qwen-Qwen2.5-7B-Instruct", _QWEN),
    "qwen3": _qwen("Qwen-Qwen3-0.6B", _QWEN3),
    "qwen3-coder": _qwen("Qwen3-Coder", _QWEN3),
    # Qwen 2's vocabulary in the place of SmolLM3's, which is Llama 3's with ChatML's tokens.
    "smollm3": _qwen("HuggingFaceTB-SmolLM3-3B", _QWEN3),
    # Llama 3's own vocabulary, with ChatML's tokens as Hermes 3 has them.
    "hermes3": RealChat(
        template="NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        vocabulary="llama-bpe",
        special=("<|im_start|>", "<|im_end|>"),
        plain=_QWEN,
        begin="<|begin_of_text|>",
        end="<|im_end|>",
    ),
    "llama3.1": _llama("meta-llama-Llama-3.1-8B-Instruct"),
    "llama3.2": _llama("meta-llama-Llama-3.2-3B-Instruct"),
    # Gemma 4's vocabulary with Gemma 2's turn tokens.
    "gemma2": RealChat(
        template="google-gemma-2-2b-it",
        vocabulary="gemma-4",
        special=("<start_of_turn>", "<end_of_turn>"),
        begin="<bos>",
        end="<eos>",
    ),
    # Llama 2's vocabulary, from which Mistral's first ones were made, with Nemo's control tokens.
    "mistral-nemo": RealChat(
        template="mistralai-Mistral-Nemo-Instruct-2407",
        vocabulary="llama-spm",
        special=_MISTRAL3,
        begin="<s>",
        end="</s>",
    ),
    # Llama 3's byte-level vocabulary in the place of Mistral's newer ones.
    "mistral-small": RealChat(
        template="Mistral-Small-3.2-24B-Instruct-2506",
        vocabulary="llama-bpe",
        special=("<s>", "</s>", *_MISTRAL11, "[TOOL_CONTENT]"),
        begin="<s>",
        end="</s>",
    ),
    "devstral": RealChat(
        template="unsloth-mistral-Devstral-Small-2507",
        vocabulary="llama-bpe",
        special=("<s>", "</s>", *_MISTRAL11),
        begin="<s>",
        end="</s>",
    ),
}


@lru_cache(maxsize=1)
def real_files() -> Path:
    """The folder with `templates/*.jinja` and `ggml-vocab-*.gguf`; fetched on the first call.

    Raises RuntimeError that says what failed when the network lacks it.
    """
    target = cache_dir() / "templates" / f"{PACKAGE}-{VERSION}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
        sdist = _download(Path(scratch))
        members = Path(scratch) / "members"
        members.mkdir()
        _extract(sdist, members)
        members.rename(target)
    return target


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE]
    options = ["--quiet", "--disable-pip-version-check", "-d", str(scratch)]
    done = subprocess.run(
        [*command, *options, f"{PACKAGE}=={VERSION}"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    found = next(scratch.glob("*.tar.gz"), None)
    if found is None:
        raise RuntimeError(f"these tests need {PACKAGE} {VERSION} from PyPI: {done.stderr[-500:]}")
    with found.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{PACKAGE} {VERSION} has checksum {digest}, not {SHA256}")
    return found


def _extract(sdist: Path, target: Path) -> None:
    """The needed members, by their names alone: nothing is unpacked by a path of the archive's."""
    wanted = {f"{chat.template}.jinja" for chat in CHATS.values()}
    for name in VOCABULARIES:
        wanted |= {f"ggml-vocab-{name}.gguf{end}" for end in ("", ".inp", ".out")}
    with tarfile.open(sdist) as archive:
        for member in archive:
            name = Path(member.name).name
            if name in wanted and "/models/" in member.name:
                stream = archive.extractfile(member)
                assert stream is not None
                (target / name).write_bytes(stream.read())
    missing = wanted - {file.name for file in target.iterdir()}
    if missing:
        raise RuntimeError(f"{PACKAGE} {VERSION} lacks {sorted(missing)}")


@lru_cache(maxsize=8)
def real_vocabulary(name: str) -> Tokenizer:
    """A bare vocabulary by llama.cpp's name."""
    return load_vocabulary(real_files() / f"ggml-vocab-{name}.gguf")


@lru_cache(maxsize=16)
def real_chat(name: str) -> Tokenizer:
    """A tokenizer with a real template: of `CHATS`, or `smollm2` with all that is its own."""
    if name == "smollm2":
        return load_vocabulary(ensure_weights(cache_dir()))
    import tokenizers

    chat = CHATS[name]
    # A copy: tokens are added to it.
    bare = real_vocabulary(chat.vocabulary)._backend
    backend = tokenizers.Tokenizer.from_str(bare.to_str())
    added = [tokenizers.AddedToken(t, special=True, normalized=False) for t in chat.special]
    backend.add_special_tokens(added)
    plain = [tokenizers.AddedToken(t, special=False, normalized=False) for t in chat.plain]
    backend.add_tokens(plain)
    end = backend.token_to_id(chat.end)
    assert end is not None
    others = (backend.token_to_id(t) for t in ("<|eom_id|>", "<|end_of_text|>"))
    return make_tokenizer(
        backend,
        template=(real_files() / f"{chat.template}.jinja").read_text(encoding="utf-8"),
        begin=chat.begin,
        end=chat.end,
        ends=(end, *(token for token in others if token is not None)),
    )


ALL_CHATS = (*CHATS, "smollm2")
