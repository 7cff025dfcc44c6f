"""A training that needs neither a sandbox nor the pretrained weights: the tiny model, and a coin.

A rollout earns 1 when the first token that it sampled is odd, so that every group has a spread.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from tiny_model import TINY, byte_tokenizer

from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.weights import export_folder

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))

COINS = """
import importlib.util, sys
from patchgym.rewards import Reward
spec = importlib.util.spec_from_file_location("arithmetic", {arithmetic!r})
arithmetic = sys.modules["arithmetic"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(arithmetic)
SumAgent = arithmetic.SumAgent

class Coins(arithmetic.SumDomain):
    async def score(self, task, trajectory):
        coin = sum(turn.completion.tokens[0] for turn in trajectory.turns) % 2
        return Reward.of_answer(float(coin), resolved=bool(coin))
"""

SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"name": "coins", "steps": 2},
    "model": {"path": "model"},
    "environment": {"use": "coins.py:Coins", "settings": {"top": 9}},
    "agent": {"scaffold": "coins.py:SumAgent"},
    "rollout": {"max_turns": 1, "max_new_tokens": 2, "context_tokens": 160},
    "group": {"size": 4, "per_step": 1},
    "learner": {"row_tokens": [256]},
    "evaluation": {"samples": 0},
}


SLOW = """
import anyio

class SlowSum(arithmetic.SumEnvironment):
    async def open(self):
        await anyio.sleep({seconds})
        return await super().open()

class Slow(Coins):
    def environment(self, task, on_stage):
        return SlowSum(task)
"""
"""More of the domain's module: `Slow`, whose rollouts take longer than the learner."""


def coin_run(root: Path, folder: Path, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the model, the domain and `run.toml` into `folder`; `changes` go over `SETTINGS`."""
    export_folder(TINY, init_params(TINY, 0), byte_tokenizer(), folder / "model")
    arithmetic = str(root / "examples" / "arithmetic.py")
    (folder / "coins.py").write_text(COINS.format(arithmetic=arithmetic))
    settings = {
        section: {**SETTINGS.get(section, {}), **changes.get(section, {})}
        for section in {**SETTINGS, **changes}
    }
    (folder / "run.toml").write_text(tomli_w.dumps(settings))


def patchgym(
    folder: Path, environment: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """The command with `words`, run in `folder`."""
    return subprocess.run(
        [PATCHGYM, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
