"""Policies beside the embedded sampler: servers, engines, and a router over several.

`check` holds any policy to the protocol; `conformance_server` is a fake that clients are checked
against. Importing this package imports neither vLLM nor an HTTP client.
"""

from .engine import VllmEngine
from .errors import (
    ContextTooLong,
    PolicyAnswerError,
    PolicyClosed,
    PolicyError,
    PolicyRefused,
    PolicyTimeout,
    PolicyUnavailable,
    WeightPushError,
)
from .openai import OpenAIEndpoint, TextCompletion, TextPolicy, ToolCall
from .router import MemberStatistics, PolicyRouter
from .server import VllmServer
from .sglang import SglangServer

__all__ = [
    "ContextTooLong",
    "MemberStatistics",
    "OpenAIEndpoint",
    "PolicyAnswerError",
    "PolicyClosed",
    "PolicyError",
    "PolicyRefused",
    "PolicyRouter",
    "PolicyTimeout",
    "PolicyUnavailable",
    "SglangServer",
    "TextCompletion",
    "TextPolicy",
    "ToolCall",
    "VllmEngine",
    "VllmServer",
    "WeightPushError",
]
