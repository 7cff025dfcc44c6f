"""`patchgym train`: run, resume, or only show what would run."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.config import (
    RunConfig,
    check_trainable,
    config_to_toml,
    load_config,
)
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.multihost import processes_of
from patchgym.trainer.resumable import Change, check_accepted, judged
from patchgym.trainer.run_folder import RunFolder, create_run, find_run
from patchgym.trainer.settings import override_pairs
from patchgym.trainer.sft import is_supervised
from patchgym.trainer.telemetry.config import check_installed

from .extras import need_train
from .main import parser
from .train_hosts import add_processes, train_in

if TYPE_CHECKING:
    from patchgym.trainer.multihost.hosts import Hosts


def run(words: Sequence[str]) -> int:
    """Entry point."""
    known, rest = _arguments().parse_known_args(words)
    processes = processes_of(known.processes, known.process, known.coordinator)
    overrides = override_pairs(rest)
    if known.ray:
        overrides.append(("ray.address", json.dumps(known.ray)))
    if processes is not None and processes.index:  # all else it hears from process 0
        need_train("training")
        return train_in(processes, lambda hosts: 0)
    if known.resume:
        folder = find_run(known.resume)
        if is_evaluation(folder):
            raise ConfigError(
                f"{folder.path} is an evaluation, nothing to train on: it goes on with "
                "patchgym evaluate"
            )
        if is_supervised(folder):
            raise ConfigError(
                f"{folder.path} is a supervised run: it goes on with patchgym sft --resume, and "
                f"training begins from its weights with --model.path FOLDER after patchgym runs "
                f"export {folder.path.name} --format hf --out FOLDER"
            )
        config, changes = _resumed(folder, known.config, overrides)
    else:
        for name in ("origin", "readmit"):
            if getattr(known, name):
                flag = "--from" if name == "origin" else "--readmit"
                raise ConfigError(f"{flag} is of a run that goes on: name it with --resume RUN")
        folder, config, changes = None, load_config(known.config, overrides), ()
    if known.print_config:
        sys.stdout.write(config_to_toml(config))
        return 0
    check_trainable(config)
    from patchgym.trainer.going_on import GoingOn
    from patchgym.trainer.session import dry_run, train

    if known.dry_run:
        return dry_run(config)
    need_train("training")
    check_installed(config.telemetry)
    resume = folder is not None
    going = GoingOn(origin=known.origin, readmit=known.readmit, changes=changes)

    def start(hosts: Hosts | None) -> int:
        run_folder = folder or create_run(config)
        return train(
            config, run_folder, resume=resume, going=going, as_json=known.json, hosts=hosts
        )

    return train_in(processes, start) if processes is not None else start(None)


def _arguments() -> ArgumentParser:
    """The flags that are no settings."""
    arguments = parser("train")
    arguments.description = "Any setting is a flag too: --learner.learning-rate 1e-6"
    arguments.add_argument("--config", type=Path, help="the run's TOML file")
    arguments.add_argument("--resume", metavar="RUN", help="go on: a folder, a name, or latest")
    arguments.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="best|STEP",
        help="with --resume: from an older checkpoint; newer ones are set aside",
    )
    arguments.add_argument(
        "--readmit",
        default="",
        metavar="ID|all",
        help="with --resume: tasks that are left out come in again",
    )
    arguments.add_argument("--dry-run", action="store_true", help="check everything, train nothing")
    arguments.add_argument("--print-config", action="store_true", help="the effective settings")
    arguments.add_argument("--json", action="store_true", help="progress as lines for programs")
    add_processes(arguments)
    arguments.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="rollouts and rewards on the nodes of a Ray cluster: HOST:PORT, or auto",
    )
    return arguments


def _resumed(
    folder: RunFolder, file: Path | None, overrides: Sequence[tuple[str, str]]
) -> tuple[RunConfig, tuple[Change, ...]]:
    """The run's own settings with the changes that a resumed run may make; all are shown."""
    old = folder.load_config()
    new = load_config(file or folder.config, overrides)
    changes = judged(old, new)
    for change in changes:
        print(change.line(), file=sys.stderr)
    check_accepted(changes)
    return new, changes
