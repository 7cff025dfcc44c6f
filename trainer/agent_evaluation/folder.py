"""The folder of an evaluation: a run's, so that `patchgym runs` reads it, and its settings.

run.toml  run.sqlite  trajectories/   as in any run
evaluation.json                       settings, tasks and the policy's facts
report.json                           the last report
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patchgym.datasets.journal import write_whole
from patchgym.trainer.config import (
    AgentSection,
    EnvironmentSection,
    EvaluationSection,
    ModelSection,
    RolloutSection,
    RunConfig,
    RunSection,
    SandboxSection,
    TasksSection,
    config_to_toml,
)
from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.run_folder import RunFolder

from .settings import AgentSettings

_FILE = "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFolder:
    """An evaluation's folder and what it says of it."""

    run: RunFolder
    record: Mapping[str, Any]
    """`settings`, `tasks` (the file's name), `task_ids`, `broken`, `samples`, `policy`."""

    @property
    def report(self) -> Path:
        """Where the report lies."""
        return self.run.path / "report.json"

    @property
    def task_ids(self) -> list[str]:
        """Usable tasks, in the file's order."""
        return list(self.record["task_ids"])

    @property
    def samples(self) -> int:
        """Rollouts of each task."""
        return int(self.record["samples"])

    @property
    def policy(self) -> Mapping[str, Any]:
        """Facts of the policy; empty until it was opened."""
        facts: Mapping[str, Any] = self.record.get("policy", {})
        return facts

    def with_policy(self, facts: Mapping[str, Any]) -> EvaluationFolder:
        """The same, with the policy's facts kept. Blocking."""
        return _write(self.run, {**self.record, "policy": dict(facts)})


def is_evaluation(folder: RunFolder) -> bool:
    """Whether the run is an evaluation of a policy."""
    return (folder.path / _FILE).is_file()


def open_evaluation(folder: RunFolder) -> EvaluationFolder:
    """What an evaluation's folder says; RunError when it is none. Blocking."""
    try:
        record = json.loads((folder.path / _FILE).read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{folder.path}: no evaluation's folder: {error}") from None
    return EvaluationFolder(run=folder, record=record)


def prepare_folder(
    path: Path,
    settings: AgentSettings,
    *,
    tasks: str,
    task_ids: Sequence[str],
    broken: Mapping[str, str],
    samples: int,
    slots: int,
) -> EvaluationFolder:
    """A new folder, or the one there that holds an evaluation with the same settings. Blocking.

    UserError when other settings were used there, or something else lies there.
    """
    folder = RunFolder(path.resolve())
    record = {
        "settings": settings.plain(),
        "tasks": tasks,
        "task_ids": list(task_ids),
        "broken": dict(broken),
        "samples": samples,
    }
    if is_evaluation(folder):
        before = open_evaluation(folder).record
        _check_same(path, before["settings"], record["settings"])
        return _write(folder, {**before, **record, "samples": max(samples, before["samples"])})
    if folder.path.exists() and any(folder.path.iterdir()):
        raise UserError(f"--run-folder {path}: something else lies there; name another folder")
    try:
        folder.trajectories.mkdir(parents=True, exist_ok=True)
        folder.config.write_text(config_to_toml(_config(folder, settings, tasks, samples, slots)))
    except OSError as error:
        raise UserError(f"--run-folder {path}: can't be made: {error.strerror}") from None
    return _write(folder, record)


def _write(folder: RunFolder, record: Mapping[str, Any]) -> EvaluationFolder:
    write_whole(folder.path / _FILE, (json.dumps(record, indent=2) + "\n").encode())
    return EvaluationFolder(run=folder, record=record)


def _check_same(path: Path, before: Mapping[str, Any], now: Any) -> None:
    for key, value in now.items():
        if before.get(key) != value:
            was, wanted = json.dumps(before.get(key)), json.dumps(value)
            raise UserError(
                f"--run-folder {path} holds an evaluation with other settings: {key} was "
                f"{was[:80]}, now {wanted[:80]}; name another folder"
            )


def _config(
    folder: RunFolder, settings: AgentSettings, tasks: str, samples: int, slots: int
) -> RunConfig:
    """The evaluation as a run's configuration, for whoever reads the folder."""
    return RunConfig(
        run=RunSection(
            steps=1, seed=settings.seed, folder=str(folder.path.parent), name=folder.path.name
        ),
        model=ModelSection(path=settings.policy),
        tasks=TasksSection(train=tasks, heldout=tasks),
        environment=EnvironmentSection(use=settings.environment),
        agent=AgentSection(scaffold=settings.scaffold),
        sandbox=SandboxSection(image=settings.image, tests_timeout=settings.tests_timeout),
        rollout=RolloutSection(**asdict(settings.limits), in_flight=slots),
        evaluation=EvaluationSection(samples=samples, seed=settings.seed),
    )
