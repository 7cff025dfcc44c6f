"""The settings of a supervised run: sections in TOML and as flags, as in `patchgym train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from patchgym.trainer.config import (
    CheckpointSection,
    EvaluationSection,
    ModelSection,
    RunConfig,
    RunSection,
    TasksSection,
)
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.loss_config import LossConfig
from patchgym.trainer.settings import changed, check_known, read_mapping, to_toml, validated

Keep = Literal["resolved", "best", "all"]

SUPERVISED: Mapping[str, Any] = {
    "loss": "nll",
    "aggregation": "token_mean",
    "learning_rate": 2e-5,
}
"""What `[learner]` begins with here."""

TASKS_NOTE = "none: a supervised run, go on with patchgym sft --resume"
"""Stands for task files in `run.toml`: whoever takes the folder for a training run reads it."""

_FIXED = (*(each.name for each in fields(LossConfig)), "mismatch_limit", "skip_budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRunSection:
    """Where the run is kept, and what it leaves behind."""

    seed: int = 0
    """Root of the shuffling and of the held-out split."""
    folder: str = "runs"
    """Runs are kept in folders below this one."""
    name: str = ""
    """Folder name; empty derives one from the time."""
    export: str = ""
    """Hugging Face folder for the final weights; empty: none is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    """What is imitated."""

    sources: tuple[str, ...] = ()
    """Files (chat or ATIF, JSON lines; what `patchgym runs import` wrote), folders of ATIF
    documents, runs, or `gold:TASKS` for the gold repairs of tasks: see docs/sft.md."""
    keep: Keep = "resolved"
    """Of a run: the rollouts that resolved their task, those of the highest reward, or all that a
    training step may learn from."""
    per_task: int = 4
    """Of a run: rollouts of one task at most, the highest rewards first; 0: no limit."""
    min_reward: float | None = None
    """Of a run: rollouts with a lower reward, or an unknown one, are left out."""
    heldout: float = 0.1
    """Share of the tasks (without names for them: of the prompts) that is measured, not trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftTrainSection:
    """How long, and in which portions."""

    epochs: int = 3
    """Times that every conversation is trained on."""
    steps: int = 0
    """Optimizer updates; 0: as many as `epochs` takes."""
    batch: int = 16
    """Conversations in an optimizer update; the last of an epoch may have fewer."""
    final_rate: float = 0.1
    """Share of `learner.learning_rate` that a half cosine falls to after the warm-up, 0 to 1;
    1 keeps it constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftCheckpointSection:
    """When state is written."""

    every: int = 50
    """Steps between checkpoints; one is also written with each measurement and when stopped."""
    keep: int = 1
    """Newest checkpoints that stay."""
    best: bool = True
    """The one with the lowest held-out loss stays, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig:
    """Everything a supervised run depends on."""

    run: SftRunSection = field(default_factory=SftRunSection)
    model: ModelSection = field(default_factory=ModelSection)
    data: DataSection = field(default_factory=DataSection)
    train: SftTrainSection = field(default_factory=SftTrainSection)
    learner: LearnerConfig = field(default_factory=lambda: LearnerConfig(**SUPERVISED))
    checkpoint: SftCheckpointSection = field(default_factory=SftCheckpointSection)

    def __post_init__(self) -> None:
        """Raise ValueError, naming the key, for a value that can't work or has no effect."""
        data, train = self.data, self.train
        checks = {
            "data.per_task": (data.per_task, data.per_task >= 0, "at least 0"),
            "data.heldout": (data.heldout, 0 <= data.heldout < 1, "0 to below 1"),
            "train.epochs": (train.epochs, train.epochs >= 1, "at least 1"),
            "train.steps": (train.steps, train.steps >= 0, "at least 0"),
            "train.batch": (train.batch, train.batch >= 1, "at least 1"),
            "train.final_rate": (train.final_rate, 0 <= train.final_rate <= 1, "0 to 1"),
            "checkpoint.every": (self.checkpoint.every, self.checkpoint.every >= 1, "at least 1"),
            "checkpoint.keep": (self.checkpoint.keep, self.checkpoint.keep >= 1, "at least 1"),
        }
        for key, (value, good, wanted) in checks.items():
            if not good:
                raise ValueError(f"{key} is {value!r}: it must be {wanted}")
        if data.keep == "best" and data.per_task == 0:
            raise ValueError("data.per_task is 0 with data.keep = 'best': say how many of a task")
        self._check_learner()

    def _check_learner(self) -> None:
        plain = LearnerConfig(**SUPERVISED)
        for name in _FIXED:
            value, wanted = getattr(self.learner, name), getattr(plain, name)
            if value != wanted:
                raise ValueError(
                    f"learner.{name} is {value!r}: supervised training has it at {wanted!r}; "
                    "leave it out"
                )


def load_sft_config(path: Path | None, overrides: list[tuple[str, str]]) -> SftConfig:
    """The settings in the file `path`, with `overrides` (dotted key, TOML text) on top.

    Raises ConfigError, which names the key and the nearest known one.
    """
    mapping, source = read_mapping(path, overrides, example="examples/sft.toml")
    check_known(SftConfig, mapping, source)
    given = mapping.get("learner", {})
    if isinstance(given, Mapping):
        mapping["learner"] = {**SUPERVISED, **given}
    return validated(SftConfig, mapping, source)


def sft_to_toml(config: SftConfig) -> str:
    """The effective settings as TOML; reading them back gives equal ones."""
    return to_toml(asdict(config))


def changed_settings(old: SftConfig, new: SftConfig) -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ, with both values."""
    return changed(asdict(old), asdict(new))


def as_run_config(config: SftConfig, steps: int) -> RunConfig:
    """The run as far as a training run's settings have words for it.

    Readers of run folders (`patchgym runs`, `evaluate --policy run:`) find the model, the number of
    steps and what the optimizer's state looks like there.
    """
    plain = LearnerConfig()
    loss = {each.name: getattr(plain, each.name) for each in fields(LossConfig)}
    checkpoint = config.checkpoint
    return RunConfig(
        run=RunSection(
            steps=steps, seed=config.run.seed, folder=config.run.folder, name=config.run.name
        ),
        model=config.model,
        tasks=TasksSection(train=TASKS_NOTE, heldout=TASKS_NOTE),
        learner=replace(config.learner, **loss),
        evaluation=EvaluationSection(samples=0),
        checkpoint=CheckpointSection(
            every=checkpoint.every, keep=checkpoint.keep, best=checkpoint.best
        ),
    )
