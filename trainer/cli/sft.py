"""`patchgym sft`: imitate conversations, resume, or only say what would run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from patchgym.trainer.errors import ConfigError, UserError
from patchgym.trainer.run_folder import find_run
from patchgym.trainer.settings import override_pairs
from patchgym.trainer.sft import (
    SftConfig,
    SftFolder,
    dry_run,
    load_sft_config,
    open_supervised,
    pinned,
    sft_to_toml,
    train,
)
from patchgym.trainer.sft.config import changed_settings

from .extras import need_train
from .main import parser

# What may differ when a run goes on: where it lies, not what is learned from what.
RESUMABLE = ("run.folder", "run.name", "run.export", "checkpoint.")


def run(words: Sequence[str]) -> int:
    """Entry point."""
    known, rest = _arguments().parse_known_args(words)
    if known.json and not known.dry_run:
        raise UserError("--json is for --dry-run: leave it out")
    config, folder = _settings(known, [*_named(known), *override_pairs(rest)])
    if known.print_config:
        sys.stdout.write(sft_to_toml(config))
        return 0
    config = pinned(config)
    if folder is not None:
        _check_changes(folder, config)
    if known.dry_run:
        _print_dry_run(dry_run(config), as_json=known.json)
        return 0
    need_train("sft")
    return train(config, folder)


def _arguments() -> argparse.ArgumentParser:
    arguments = parser("sft")
    arguments.description = "Any setting is a flag too: --learner.learning-rate 1e-5"
    add = arguments.add_argument
    add("--config", type=Path, help="the run's TOML file")
    add(
        "--data", nargs="+", metavar="FILE|RUN",
        help="chat or ATIF files, runs, or gold:TASKS for gold repairs (data.sources)",
    )  # fmt: skip
    add("--keep", choices=("resolved", "best", "all"), help="which rollouts of a run (data.keep)")
    add("--per-task", metavar="N", help="rollouts of a task at most (data.per_task)")
    add("--min-reward", metavar="X", help="rollouts with less are left out (data.min_reward)")
    add("--export", metavar="FOLDER", help="Hugging Face folder for the weights (run.export)")
    add("--resume", metavar="RUN", help="go on: a folder, a name, or latest")
    add("--dry-run", action="store_true", help="read the data and say what would run")
    add("--print-config", action="store_true", help="the effective settings")
    add("--json", action="store_true", help="with --dry-run")
    return arguments


def _named(known: argparse.Namespace) -> list[tuple[str, str]]:
    """The flags that have a name of their own, as settings."""
    pairs: list[tuple[str, str]] = []
    if known.data is not None:
        pairs.append(("data.sources", json.dumps(known.data)))
    for key, value in (("data.keep", known.keep), ("run.export", known.export)):
        if value is not None:
            pairs.append((key, json.dumps(value)))
    for key, value in (("data.per_task", known.per_task), ("data.min_reward", known.min_reward)):
        if value is not None:
            pairs.append((key, value))
    return pairs


def _settings(
    known: argparse.Namespace, overrides: list[tuple[str, str]]
) -> tuple[SftConfig, SftFolder | None]:
    if not known.resume:
        return load_sft_config(known.config, overrides), None
    folder = open_supervised(find_run(known.resume))
    return load_sft_config(known.config or folder.config, overrides), folder


def _check_changes(folder: SftFolder, config: SftConfig) -> None:
    for key, (before, after) in changed_settings(folder.load_config(), config).items():
        if not key.startswith(RESUMABLE):
            raise ConfigError(
                f"{key} can't change from {before!r} to {after!r} in a run that goes on; "
                "start a new run for that"
            )


def _print_dry_run(record: dict[str, object], *, as_json: bool) -> None:
    lines = record.pop("lines")
    if as_json:
        print(json.dumps(record, indent=2))
        return
    assert isinstance(lines, list)
    for line in lines:
        print(line)
