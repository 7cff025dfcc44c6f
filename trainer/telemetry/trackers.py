"""The experiment trackers that a step's numbers can go to; each imports its package when opened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from patchgym.trainer.errors import ConfigError

from .config import TelemetryConfig
from .scalars import ScalarSink


class TensorBoard:
    """Event files in `RUN/tensorboard/`."""

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """A scalar for each number, on disk at once: steps are rare."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """A run of a project; offline, a folder in `RUN/wandb/` for `wandb sync`."""

    name = "Weights & Biases"

    def __init__(self, project: str, run: Path, settings: Mapping[str, Any]) -> None:
        """Goes on with the run of that name, if there is one. Raises ConfigError without a
        login."""
        import wandb

        mode = os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not wandb.api.api_key:
            raise ConfigError(
                "telemetry.wandb: not logged in: run `wandb login`, or set WANDB_MODE=offline to "
                "keep the numbers in the run's folder"
            )
        self._run = wandb.init(
            project=project,
            name=run.name,
            id=run.name,
            resume="allow",
            dir=str(run),
            config=dict(settings),
            settings=wandb.Settings(console="off", silent=True, disable_git=True),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """A row of the history."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Wait until what was logged is kept."""
        self._run.finish()


class MLflow:
    """A run of the experiment `patchgym`, on a server or in a folder."""

    name = "MLflow"

    def __init__(self, where: str, run: Path, settings: Mapping[str, Any]) -> None:
        """Goes on with the run of that name, if there is one."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        if "://" not in where:  # MLflow still writes folders, for those who ask for it
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            where = Path(where).expanduser().absolute().as_uri()
        self._client = MlflowClient(tracking_uri=where)
        found = self._client.get_experiment_by_name("patchgym")
        experiment = found.experiment_id if found else self._client.create_experiment("patchgym")
        query = f"attributes.run_name = '{run.name}'"
        runs = self._client.search_runs([experiment], query, max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=run.name).info.run_id
        parameters = [Param(key, str(value)[:500]) for key, value in _leaves(settings).items()]
        for place in range(0, len(parameters), 100):
            self._client.log_batch(self._id, params=parameters[place : place + 100])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """A metric for each number."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        rows = [Metric(_allowed(name), value, now, step) for name, value in values.items()]
        for place in range(0, len(rows), 500):
            self._client.log_batch(self._id, metrics=rows[place : place + 500])

    def close(self) -> None:
        """The run is over."""
        self._client.set_terminated(self._id)


def _allowed(name: str) -> str:
    """MLflow takes these letters alone."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{key}.")
        else:
            found[_allowed(f"{prefix}{key}")] = value
    return found


def open_trackers(
    config: TelemetryConfig, run: Path, settings: Mapping[str, Any]
) -> list[ScalarSink]:
    """The trackers that `config` names, open for the run in the folder `run`; `settings` is its
    whole configuration. ConfigError says which one can't be opened, and why."""
    opened: list[ScalarSink] = []
    makers: dict[str, Callable[[], ScalarSink]] = {
        "tensorboard": lambda: TensorBoard(run / "tensorboard"),
        "wandb": lambda: WeightsAndBiases(config.wandb, run, settings),
        "mlflow": lambda: MLflow(config.mlflow, run, settings),
    }
    try:
        for option, make in makers.items():
            if getattr(config, option):
                opened.append(_opened(option, make))
    except BaseException:
        for tracker in opened:
            tracker.close()
        raise
    return opened


def _opened(option: str, make: Callable[[], ScalarSink]) -> ScalarSink:
    try:
        return make()
    except ConfigError:
        raise
    except Exception as error:  # whatever a tracker raises, it is its option that is at fault
        first = (str(error).splitlines() or [""])[0]
        words = f"telemetry.{option} can't be opened: {type(error).__name__}: {first}"
        raise ConfigError(words) from error
