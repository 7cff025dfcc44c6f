"""Harbor's Agent Trajectory Interchange Format (ATIF), version 1.8, written.

One document a trajectory, one step a completion (`llm_call_count` is 1). A step's message is all
that the model wrote, its calls included; they stand in `tool_calls` once more, read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import patchgym
from patchgym.agent import Turn
from patchgym.agent.chat import ChatTokenizer

from .conversation import Conversation, Exchange, conversations
from .facts import RolloutFacts
from .shape import ChatShape

VERSION = "ATIF-v1.8"


def atif_document(
    facts: RolloutFacts, tokenizer: ChatTokenizer, shape: ChatShape, *, tokens: str = ""
) -> dict[str, Any]:
    """The trajectory; `tokens` is the tokenizer's fingerprint: ids and log-probabilities go along
    then."""
    trajectory = facts.stored.trajectory
    parts = conversations(trajectory, tokenizer, shape)
    steps: list[dict[str, Any]] = []
    for part in parts:
        _add_steps(steps, part, first=part is parts[0], ids=bool(tokens))
    for number, step in enumerate(steps, 1):
        steps[number - 1] = {"step_id": number, **step}
    prompts = [len(each.prompt) for part in parts for each in part.exchanges]
    labels = facts.labels()
    document: dict[str, Any] = {
        "schema_version": VERSION,
        "session_id": facts.run,
        "trajectory_id": trajectory.rollout_id,
        "agent": {
            "name": f"patchgym-{facts.scaffold}",
            "version": patchgym.__version__,
            "model_name": facts.model,
            "extra": {"environment": facts.environment},
        },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(prompts),
            "total_completion_tokens": trajectory.sampled_tokens,
            "total_steps": len(steps),
            "extra": {"seconds": trajectory.seconds, "reward": labels["reward"]},
        },
        "extra": {"patchgym": {**labels, "patch": facts.patch, "tokenizer": tokens}},
    }
    if len(parts) > 1:
        document["notes"] = (
            f"The history was rewritten {len(parts) - 1} times to fit the context; steps marked "
            "`restarts` begin anew from the context that their prompt_token_ids hold."
        )
    return document


def _add_steps(steps: list[dict[str, Any]], part: Conversation, *, first: bool, ids: bool) -> None:
    """Prompt steps of the first segment, then one step a turn.

    Observations stand with the turn that they answer; so the messages that carry them are no
    steps, and neither is a rewritten history.
    """
    for place, each in enumerate(part.exchanges):
        if place == 0 and first:
            steps.extend(_prompt_step(message) for message in each.before)
        steps.append(_step(each, restarts=place == 0 and not first, ids=ids))


def _prompt_step(message: Mapping[str, Any]) -> dict[str, Any]:
    """A rendered prompt is marked: it is more than what the system said."""
    step: dict[str, Any] = {"source": message["role"], "message": message["content"]}
    if message.get("rendered"):
        step["extra"] = {"rendered": message["rendered"], "ids": message["ids"]}
    return step


def _step(each: Exchange, *, restarts: bool, ids: bool) -> dict[str, Any]:
    turn, completion = each.turn, each.turn.completion
    metrics: dict[str, Any] = {
        "prompt_tokens": len(each.prompt),
        "completion_tokens": len(completion.tokens),
    }
    if ids:
        metrics |= {
            "prompt_token_ids": list(each.prompt),
            "completion_token_ids": list(completion.tokens),
            "logprobs": list(completion.logprobs),
        }
    extra: dict[str, Any] = {
        "finish": completion.finish,
        "policy_version": completion.policy_version,
        "sample_seconds": turn.sample_seconds,
        "tool_seconds": turn.tool_seconds,
        "calls_in_message": True,
    }
    if each.prefill:
        extra["prefill"] = each.prefill
    if restarts:
        extra["restarts"] = True
    step: dict[str, Any] = {"source": "agent", "message": each.prefill + each.said}
    if turn.calls:
        step["tool_calls"] = _calls(turn)
    if turn.observations:
        step["observation"] = {"results": _results(turn)}
    return {**step, "metrics": metrics, "llm_call_count": 1, "extra": extra}


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {
            "tool_call_id": _name(place),
            "function_name": call.name,
            "arguments": dict(call.arguments),
        }
        for place, call in enumerate(turn.calls)
    ]


def _results(turn: Turn) -> Sequence[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for place, observation in enumerate(turn.observations):
        result: dict[str, Any] = {"content": observation.text, "extra": {"kind": observation.kind}}
        if place < len(turn.calls):
            result["source_call_id"] = _name(place)
        results.append(result)
    return results


def _name(place: int) -> str:
    """A call's id: unique in its step, which is where results look for it."""
    return f"call-{place + 1}"
