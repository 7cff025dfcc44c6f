"""`patchgym runs profile`: a capture of a running run, asked for from another terminal."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.errors import RunError
from patchgym.trainer.profiling import ask_for_capture
from patchgym.trainer.run_folder import find_run


def add_profile(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-command's flags."""
    profile = actions.add_parser("profile", help="capture what a running run does right now")
    profile.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    profile.add_argument("--seconds", type=float, default=10.0, metavar="S", help="1 to 120")
    profile.add_argument("--json", action="store_true")


def run_profile(known: argparse.Namespace) -> int:
    """`runs profile`; UserError when there is no capture."""
    folder = find_run(known.run, known.folder)
    if is_evaluation(folder):
        raise RunError(f"{folder.path}: an evaluation has no learner to look at; name a training")
    errors = Console(stderr=True)
    errors.print(f"capturing {known.seconds:g} s of {folder.path}", soft_wrap=True, highlight=False)
    record = ask_for_capture(folder, known.seconds)
    if known.json:
        print(json.dumps(record, indent=2))
    else:
        for line in _lines(record):
            Console().print(line, soft_wrap=True, markup=False, highlight=False)
    return 0


def _lines(record: dict[str, Any]) -> list[str]:
    size = record["bytes"] / (1 << 20)
    cut = ", cut short by the run's end" if record["cut_short"] else ""
    lines = [
        f"{record['path']}: {size:.1f} MiB, {record['seconds']:.1f} s from step {record['step']}"
        f"{cut}",
        f"look at it with: xprof {record['path']}  (pip install xprof; or tensorboard --logdir)",
    ]
    if record["trace"]:
        lines.append(f"or open in Perfetto: {record['path']}/{record['trace']}")
    return lines
