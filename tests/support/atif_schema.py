"""ATIF as a JSON schema, written from the specification's tables (v1.7, and 1.8's version)."""

from __future__ import annotations

from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_OBJECT: dict[str, Any] = {"type": "object"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_IDS: dict[str, Any] = {"type": "array", "items": _COUNT}
_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number"}}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


_CALL = _closed(
    ["tool_call_id", "function_name", "arguments"],
    tool_call_id=_TEXT,
    function_name=_TEXT,
    arguments=_OBJECT,
    extra=_OBJECT,
)
_RESULT = _closed([], source_call_id=_TEXT, content=_TEXT, extra=_OBJECT)
_METRICS = _closed(
    [],
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    cached_tokens=_COUNT,
    cost_usd={"type": "number"},
    prompt_token_ids=_IDS,
    completion_token_ids=_IDS,
    logprobs=_NUMBERS,
    extra=_OBJECT,
)
_STEP = _closed(
    ["step_id", "source", "message"],
    step_id={"type": "integer", "minimum": 1},
    timestamp=_TEXT,
    source={"enum": ["system", "user", "agent"]},
    model_name=_TEXT,
    reasoning_effort={"type": ["string", "number"]},
    message=_TEXT,
    reasoning_content=_TEXT,
    tool_calls={"type": "array", "items": _CALL},
    observation=_closed(["results"], results={"type": "array", "items": _RESULT}),
    metrics=_METRICS,
    extra=_OBJECT,
    llm_call_count=_COUNT,
    is_copied_context={"type": "boolean"},
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_closed(
        ["schema_version", "agent", "steps"],
        schema_version={"enum": [f"ATIF-v1.{minor}" for minor in range(9)]},
        session_id=_TEXT,
        trajectory_id=_TEXT,
        agent=_closed(
            ["name", "version"],
            name=_TEXT,
            version=_TEXT,
            model_name=_TEXT,
            tool_definitions={"type": "array", "items": _OBJECT},
            extra=_OBJECT,
        ),
        steps={"type": "array", "minItems": 1, "items": _STEP},
        notes=_TEXT,
        final_metrics=_closed(
            [],
            total_prompt_tokens=_COUNT,
            total_completion_tokens=_COUNT,
            total_cached_tokens=_COUNT,
            total_cost_usd={"type": "number"},
            total_steps=_COUNT,
            extra=_OBJECT,
        ),
        continued_trajectory_ref=_TEXT,
        extra=_OBJECT,
    ),
}
"""Multimodal parts and sub-agents, which we never write, are left out."""

_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


def check_atif(document: Any) -> None:
    """Raise for a document that is none; also for what a schema can't say."""
    import jsonschema  # type: ignore[import-untyped]

    jsonschema.validate(document, SCHEMA)
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number
        assert step["source"] == "agent" or not set(step) & set(_AGENT_ONLY)
        calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        assert len(calls) == len(step.get("tool_calls", ()))
        for result in step.get("observation", {}).get("results", ()):
            assert result.get("source_call_id") is None or result["source_call_id"] in calls
        metrics = step.get("metrics", {})
        for ids, count in (("prompt", "prompt_tokens"), ("completion", "completion_tokens")):
            if f"{ids}_token_ids" in metrics:
                assert len(metrics[f"{ids}_token_ids"]) == metrics[count]
        if "logprobs" in metrics:
            assert len(metrics["logprobs"]) == metrics["completion_tokens"]
