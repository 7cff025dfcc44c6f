"""`patchgym train`: run, resume, or only show what would run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.config import RunConfig, changed_keys, config_to_toml, load_config
from patchgym.trainer.errors import ConfigError, UserError
from patchgym.trainer.run_folder import RunFolder, create_run, find_run

from .main import parser

# What may differ when a run goes on: how far and how fast, not what is learned from what.
RESUMABLE = (
    *("run.steps", "run.folder", "run.name", "run.stall_limit", "sandbox.", "scoring."),
    *("checkpoint.", "failures.", "policy."),
)


def run(words: Sequence[str]) -> int:
    """Entry point."""
    arguments = parser("train")
    arguments.description = "Any setting is a flag too: --learner.learning-rate 1e-6"
    arguments.add_argument("--config", type=Path, help="the run's TOML file")
    arguments.add_argument("--resume", metavar="RUN", help="go on: a folder, a name, or latest")
    arguments.add_argument("--dry-run", action="store_true", help="check everything, train nothing")
    arguments.add_argument("--print-config", action="store_true", help="the effective settings")
    known, rest = arguments.parse_known_args(words)
    overrides = _overrides(rest)
    if known.resume:
        folder = find_run(known.resume)
        if is_evaluation(folder):
            raise ConfigError(
                f"{folder.path} is an evaluation, nothing to train on: it goes on with "
                "patchgym evaluate"
            )
        config = _resumed(folder, known.config, overrides)
    else:
        folder, config = None, load_config(known.config, overrides)
    if known.print_config:
        sys.stdout.write(config_to_toml(config))
        return 0
    from patchgym.trainer.session import dry_run, train

    if known.dry_run:
        return dry_run(config)
    _need_extra()
    resume = folder is not None
    return train(config, folder or create_run(config), resume=resume)


def _need_extra() -> None:
    """Say at once, not minutes later, that a base install can't train."""
    needed = ("jax", "flax", "optax", "orbax", "gguf", "tokenizers", "matplotlib", "plotext")
    missing = [module for module in needed if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(f"training needs {', '.join(missing)}: run pip install 'patchgym[train]'")


def _overrides(words: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs from `--section.field value` and `--section.field=value`."""
    pairs: list[tuple[str, str]] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or "." not in name:
            raise ConfigError(f"{word}: not a flag; settings are written --section.field value")
        if not equals:
            if not queue:
                raise ConfigError(f"--{name}: its value is missing")
            value = queue.pop(0)
        pairs.append((name, value))
    return pairs


def _resumed(
    folder: RunFolder, file: Path | None, overrides: Sequence[tuple[str, str]]
) -> RunConfig:
    """The run's own settings with the changes that a resumed run may make."""
    old = folder.load_config()
    new = load_config(file or folder.config, overrides)
    for key, (before, after) in changed_keys(old, new).items():
        if not any(key == name or key.startswith(name) for name in RESUMABLE):
            raise ConfigError(
                f"{key} can't change from {before!r} to {after!r} in a run that goes on; "
                "start a new run for that"
            )
    return new
