"""Policies by name, as the command line asks for them: `model:PATH`, `vllm:http://...`, and so on.

Importing this package imports no JAX, no vLLM and no HTTP client.
"""

from .opening import NO_CLUSTER, OpenedPolicy, PolicyOptions, open_policy
from .spec import PolicyKind, PolicySpec, parse_policy
from .text_policy import TEXT_VERSION, TextAdapter, TextTokenizer, TokenUse
from .tokenizers import fingerprint, load_chat_tokenizer, model_path

__all__ = [
    "NO_CLUSTER",
    "TEXT_VERSION",
    "OpenedPolicy",
    "PolicyKind",
    "PolicyOptions",
    "PolicySpec",
    "TextAdapter",
    "TextTokenizer",
    "TokenUse",
    "fingerprint",
    "load_chat_tokenizer",
    "model_path",
    "open_policy",
    "parse_policy",
]
