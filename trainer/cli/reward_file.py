"""`--rewards FILE`: a reward from TOML, as a `[reward]` section or with its keys at top level."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from patchgym.rewards.config import RewardConfig
from patchgym.rewards.registry import BUILT_IN
from patchgym.trainer.errors import UserError


def read_reward(path: Path | None, *, everything: bool = False) -> RewardConfig:
    """The reward in `path`, or the default one; UserError names the file and the key.

    `everything` adds the built-in components that it does not name, with weight 0 and no gate.
    """
    section: dict[str, Any] = {} if path is None else _section(path)
    if everything:
        usual = {part.name: part.weight for part in RewardConfig.of().parts}
        more = {**dict.fromkeys(BUILT_IN, {"weight": 0.0, "gate": ""}), **usual}
        section |= {name: weight for name, weight in more.items() if name not in section}
    try:
        return RewardConfig.of(section)
    except ValueError as error:
        raise UserError(f"{path or 'the default reward'}: reward.{error}") from None


def _section(path: Path) -> dict[str, Any]:
    try:
        mapping = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"--rewards {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--rewards {path}: not UTF-8; it must be a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"--rewards {path}: not TOML: {error}") from None
    section = mapping.get("reward", mapping)
    if not isinstance(section, dict):
        raise UserError(f"--rewards {path}: reward is {section!r}: it must be a section")
    return dict(section)
