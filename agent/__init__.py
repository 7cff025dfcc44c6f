"""Agents and environments: how a policy acts on a task, and the record it leaves."""

from .environment import EnvironmentConfig, RepairEnvironment, StepResult
from .policy import Completion, Policy, SampleRequest
from .repair import Answer, RepairAgent
from .rollout import RolloutLimits, rollout, stream_seed
from .scripted import CharacterTokenizer, ScriptedPolicy
from .stop_reason import STOP_RULES, StopReason, StopRule, rule_for
from .trajectory import Observation, Trajectory, Turn

__all__ = [
    "STOP_RULES",
    "Answer",
    "CharacterTokenizer",
    "Completion",
    "EnvironmentConfig",
    "Observation",
    "Policy",
    "RepairAgent",
    "RepairEnvironment",
    "RolloutLimits",
    "SampleRequest",
    "ScriptedPolicy",
    "StepResult",
    "StopReason",
    "StopRule",
    "Trajectory",
    "Turn",
    "rollout",
    "rule_for",
    "stream_seed",
]
