"""What servers answer, checked field by field before anything of it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patchgym.agent.policy import (
    Completion,
    CompletionError,
    Finish,
    SampleRequest,
    VersionSpan,
    check_completion,
)

from .errors import ContextTooLong, PolicyAnswerError, PolicyRefused

IMPOSSIBLE = -9000.0
"""Servers write -9999 where a log-probability is missing, minus infinity or not a number."""


def check_request(request: SampleRequest, *, where: str, window: int | None) -> None:
    """Refuse what would fail later or differently; ContextTooLong, PolicyRefused."""
    if not request.tokens:
        raise PolicyRefused("the context is empty: a model continues at least one token")
    if request.max_new_tokens < 1:
        raise PolicyRefused(f"max_new_tokens is {request.max_new_tokens}: it must be at least 1")
    if request.temperature < 0:
        raise PolicyRefused(f"temperature is {request.temperature}: it can't be negative")
    if min(request.tokens) < 0:
        raise PolicyRefused(f"the context holds the token id {min(request.tokens)}")
    if window is not None and len(request.tokens) + request.max_new_tokens > window:
        raise ContextTooLong(
            f"{where}: a context of {len(request.tokens)} tokens and {request.max_new_tokens} new"
            f" ones don't fit the window of {window}"
        )


def completion_of(
    request: SampleRequest,
    *,
    where: str,
    tokens: Any,
    logprobs: Any,
    finish: Finish,
    spans: Sequence[VersionSpan],
) -> Completion:
    """The checked completion; PolicyAnswerError says in one line what is wrong with it."""
    ids = integers(tokens, f"{where}: token ids")
    values = numbers(logprobs, f"{where}: logprobs")
    missing = next((p for p in values if p <= IMPOSSIBLE), None)
    if missing is not None:
        raise PolicyAnswerError(f"{where}: the log-probability of a sampled token is missing")
    if request.temperature == 0:
        # The choice was certain; servers report the probability before that choice instead.
        values = [0.0] * len(values)
    oldest = min((span.policy_version for span in spans), default=0)
    completion = Completion(
        tokens=tuple(ids),
        logprobs=tuple(values),
        policy_version=oldest,
        finish=finish,
        spans=tuple(spans) if len(spans) > 1 else (),
    )
    try:
        return check_completion(request, completion)
    except CompletionError as error:
        raise PolicyAnswerError(f"{where}: {error}") from error


def integers(value: Any, what: str) -> list[int]:
    """`value` as a list of integers."""
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise PolicyAnswerError(f"{what} are not a list of integers")
    return value


def numbers(value: Any, what: str) -> list[float]:
    """`value` as a list of floats."""
    if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
        raise PolicyAnswerError(f"{what} are not a list of numbers")
    return [float(item) for item in value]


def version_of(label: Any, initial: int, where: str) -> int:
    """The policy_version that a server's label names.

    "default" is what servers call the weights that they were started with.
    """
    if label is None or label == "default":
        return initial
    try:
        return int(label)
    except (TypeError, ValueError):
        raise PolicyAnswerError(
            f"{where}: the weight version {label!r} is not a number: somebody else publishes there"
        ) from None
