"""SWE-agent's `.traj` files: one JSON document a trajectory, for its inspector and its tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import patchgym
from patchgym.agent import StopReason, ToolCall, Turn
from patchgym.agent.chat import ChatTokenizer

from .conversation import conversations
from .facts import RolloutFacts
from .shape import ChatShape

_CALLS = ("```bash", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=")
"""What a call begins with, in the formats that are read."""

_EXITS: Mapping[StopReason, str] = {
    "solved": "submitted",
    "submitted": "submitted",
    "turn_limit": "exit_cost",
    "context_limit": "exit_context",
    "deadline": "exit_total_execution_time",
}


def traj_document(
    facts: RolloutFacts, tokenizer: ChatTokenizer, shape: ChatShape
) -> dict[str, Any]:
    """The trajectory: `trajectory`, `history`, `info`, `replay_config`, `environment`."""
    trajectory = facts.stored.trajectory
    steps: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    sent = 0
    for part in conversations(trajectory, tokenizer, shape):
        history = []  # a rewritten history replaces the one before
        for each in part.exchanges:
            history += [_item(message) for message in each.before]
            query = [{"role": item["role"], "content": item["content"]} for item in history]
            steps.append(_step(each.turn, each.prefill + each.said, query))
            history.append(_item(each.message))
            sent += len(each.prompt)
    ended = _EXITS.get(trajectory.stop_reason, "exit_error")
    if ended != "submitted" and facts.patch:
        ended = f"submitted ({ended})"
    return {
        "environment": facts.environment,
        "trajectory": steps,
        "history": history,
        "info": {
            "exit_status": ended,
            "submission": facts.patch or None,
            "model_stats": {
                "instance_cost": 0.0,
                "tokens_sent": sent,
                "tokens_received": trajectory.sampled_tokens,
                "api_calls": len(trajectory.turns),
            },
            "agent_version": f"patchgym {patchgym.__version__}",
            "patchgym": facts.labels(),
        },
        "replay_config": None,
    }


def _step(turn: Turn, text: str, query: list[dict[str, Any]]) -> dict[str, Any]:
    starts = [text.index(mark) for mark in _CALLS if mark in text]
    return {
        "action": "\n".join(_action(call) for call in turn.calls),
        "observation": "\n".join(observation.text for observation in turn.observations),
        "response": text,
        "thought": (text[: min(starts)] if starts else text).strip(),
        "state": {},
        "execution_time": turn.tool_seconds,
        "query": query,
        "extra_info": {},
    }


def _action(call: ToolCall) -> str:
    """A shell command as it is; any other call with its arguments as JSON."""
    command = call.arguments.get("command")
    if call.name == "bash" and isinstance(command, str):
        return command
    return f"{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}"


_TYPES = {"system": "system_prompt", "user": "observation", "tool": "observation"}


def _item(message: Mapping[str, Any]) -> dict[str, Any]:
    kind = "action" if message["role"] == "assistant" else _TYPES[message["role"]]
    return {
        "role": message["role"],
        "content": message["content"],
        "message_type": kind,
        "agent": "main",
    }
