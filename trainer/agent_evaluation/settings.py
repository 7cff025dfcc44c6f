"""What an evaluation of a policy depends on, with the defaults of each environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from patchgym.agent import RolloutLimits
from patchgym.agent.scaffolds import ScaffoldName
from patchgym.datasets.task import Task
from patchgym.trainer.errors import UserError

EnvironmentName = Literal["repair", "repository"]

HOUR = 3600.0

DEFAULTS: Mapping[EnvironmentName, RolloutLimits] = {
    "repair": RolloutLimits(tool_seconds=2 * HOUR, seconds=3 * HOUR),
    "repository": RolloutLimits(
        max_turns=50,
        max_new_tokens=2048,
        context_tokens=32_768,
        seconds=3 * HOUR,
        tool_seconds=2 * HOUR,
    ),
}
"""Limits of rollouts; those in seconds are generous, since a wait for a sandbox counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything that the outcome of a rollout depends on."""

    policy: str
    """As it was named."""
    tokenizer: str = ""
    environment: EnvironmentName = "repair"
    scaffold: ScaffoldName = "repair"
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    seed: int = 1_000_003
    """Root of the random streams of rollouts."""
    image: str = "auto"
    """Of tasks that name none."""
    tests_timeout: float = 60.0
    """Seconds of a test run, where the task says nothing."""
    reruns: int = 1
    """How often a failed test is run again, to find flaky ones."""
    tasks: str = ""
    """Fingerprint of the tasks."""

    def plain(self) -> dict[str, object]:
        """As JSON types."""
        record: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return record

    def key(self) -> str:
        """Eight letters that name these settings."""
        text = json.dumps(self.plain(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def resolve_settings(
    tasks: Sequence[Task],
    *,
    environment: str = "auto",
    scaffold: str = "auto",
    limits: Mapping[str, float] | None = None,
    **rest: object,
) -> AgentSettings:
    """Settings with `auto` replaced; UserError for a choice that doesn't fit the tasks.

    `limits` replace those of the environment's defaults; `rest` are other fields of AgentSettings.
    """
    chosen = _environment(tasks, environment)
    allowed = {"repair": ("repair", "tools"), "repository": ("tools", "bash")}[chosen]
    name = scaffold if scaffold != "auto" else allowed[0]
    if name not in allowed:
        raise UserError(
            f"--scaffold {name} does not fit the {chosen} environment: use {' or '.join(allowed)}"
        )
    bounds = RolloutLimits(**{**asdict(DEFAULTS[chosen]), **(limits or {})})
    if bounds.max_new_tokens >= bounds.context_tokens:
        raise UserError(
            f"--max-new-tokens {bounds.max_new_tokens} leaves no room in a context of "
            f"{bounds.context_tokens}: raise --context-tokens"
        )
    made = {"environment": chosen, "scaffold": name, "limits": bounds, "tasks": _key(tasks)}
    return AgentSettings(**{**rest, **made})  # type: ignore[arg-type]


def _environment(tasks: Sequence[Task], name: str) -> EnvironmentName:
    unfocused = next((task.id for task in tasks if task.focus is None), None)
    if name == "auto":
        return "repository" if unfocused is not None else "repair"
    if name == "repair" and unfocused is not None:
        raise UserError(
            f"--environment repair: {unfocused} is not about one function: use repository"
        )
    return "repair" if name == "repair" else "repository"


def _key(tasks: Sequence[Task]) -> str:
    known = sorted((task.id, task.content) for task in tasks)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
