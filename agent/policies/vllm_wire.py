"""What vLLM is asked and what it answers: shared by its server and the engine in process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patchgym.agent.policy import Finish, SampleRequest, VersionSpan

from .answers import version_of
from .errors import PolicyAnswerError, PolicyUnavailable

_SEEDS = 1 << 63


def sampling_fields(request: SampleRequest, end_ids: Sequence[int]) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams for one turn.

    All truncation is turned off by name: a model's generation_config.json may switch it on.
    """
    return {
        "n": 1,
        "max_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": request.seed % _SEEDS,
        "logprobs": 0,
        "stop": list(request.stop),
        "stop_token_ids": list(end_ids),
        # Stop texts are searched in text; without them nothing is detokenized.
        "detokenize": bool(request.stop),
        "include_stop_str_in_output": True,
        "skip_special_tokens": True,
    }


def finish_of(reason: Any, detail: Any, where: str) -> Finish:
    """Why a turn ended, from vLLM's `finish_reason` and `stop_reason`."""
    if reason == "stop":
        return "stop" if isinstance(detail, str) else "eos"
    if reason == "length":
        return "length"
    if reason in ("abort", "error"):
        raise PolicyUnavailable(f"{where}: the engine ended the turn: {reason}")
    raise PolicyAnswerError(f"{where}: unknown finish_reason {reason!r}")


def spans_of(
    versions: Sequence[tuple[Any, int, int]] | None, count: int, *, initial: int, where: str
) -> list[VersionSpan]:
    """Spans from vLLM's (label, start, end); `initial` is what its own label stands for."""
    if not versions:
        return [VersionSpan(policy_version=initial, tokens=count)] if count else []
    spans: list[VersionSpan] = []
    for label, start, end in versions:
        version = version_of(label, initial, where)
        if end <= start:
            continue
        if spans and spans[-1].policy_version == version:
            version_tokens = spans.pop().tokens + end - start
            spans.append(VersionSpan(policy_version=version, tokens=version_tokens))
        else:
            spans.append(VersionSpan(policy_version=version, tokens=end - start))
    if sum(span.tokens for span in spans) != count:
        raise PolicyAnswerError(f"{where}: weight_versions don't cover the {count} tokens")
    return spans
