"""Agents and environments: how a policy acts on a task, and the record it leaves."""

from .action import Action, Observation, ObservationKind, Opening, ToolCall, ToolSpec
from .agent import Agent, AgentFactory, Context
from .environment import Environment
from .policy import (
    Completion,
    CompletionError,
    Policy,
    PolicyLoad,
    SampleRequest,
    VersionSpan,
    check_completion,
)
from .repair import RepairAgent, RepairConfig, RepairEnvironment
from .rollout import RolloutLimits, Straggle, rollout, stream_seed
from .scripted import CharacterTokenizer, ScriptedPolicy
from .stop_reason import STOP_RULES, FailureKind, StopReason, StopRule, rule_for
from .telemetry import rollout_span
from .trajectory import Segment, Trajectory, Turn

__all__ = [
    "STOP_RULES",
    "Action",
    "Agent",
    "AgentFactory",
    "CharacterTokenizer",
    "Completion",
    "CompletionError",
    "Context",
    "Environment",
    "FailureKind",
    "Observation",
    "ObservationKind",
    "Opening",
    "Policy",
    "PolicyLoad",
    "RepairAgent",
    "RepairConfig",
    "RepairEnvironment",
    "RolloutLimits",
    "SampleRequest",
    "ScriptedPolicy",
    "Segment",
    "StopReason",
    "StopRule",
    "Straggle",
    "ToolCall",
    "ToolSpec",
    "Trajectory",
    "Turn",
    "VersionSpan",
    "check_completion",
    "rollout",
    "rollout_span",
    "rule_for",
    "stream_seed",
]
