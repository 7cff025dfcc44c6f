"""`patchgym runs why`: what a run waits for, in plain words with numbers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.live_picture import inert
from patchgym.trainer.run_folder import find_run
from patchgym.trainer.sft import is_supervised
from patchgym.trainer.why import advise, lines_of, read_facts, record_of

from .number_words import positive


def add_why(actions: Any) -> None:
    """The sub-command's flags."""
    why = actions.add_parser("why", help="what learner and sampler wait for, and what would help")
    why.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    why.add_argument("--last", type=positive, default=20, metavar="N", help="steps to look at")
    why.add_argument("--json", action="store_true")


def run_why(known: argparse.Namespace) -> int:
    """Entry point; 0 whatever it finds."""
    folder = find_run(known.run, known.folder)
    if is_evaluation(folder) or is_supervised(folder):
        kind = "an evaluation" if is_evaluation(folder) else "a supervised run"
        raise ConfigError(f"{folder.path} is {kind}: only trainings keep an account of waits")
    facts = read_facts(folder, last=known.last)
    advice = advise(facts)
    if known.json:
        print(json.dumps(record_of(facts, advice), indent=2))
        return 0
    console = Console()
    for line in lines_of(facts, advice):
        console.print(inert(line), soft_wrap=True, markup=False, highlight=False)
    return 0
