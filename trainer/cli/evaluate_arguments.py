"""The flags of `patchgym evaluate`, and the tasks that they name."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchgym.datasets.recipes import load_recipes
from patchgym.datasets.swebench import read_task_file
from patchgym.datasets.task import Task
from patchgym.rewards import JudgeConfig
from patchgym.trainer.errors import UserError
from patchgym.trainer.policies.spec import FORMS
from patchgym.trainer.task_sets import load_task_set

from .main import parser
from .mirrors import read_mirrors
from .number_words import count, positive, seconds, share

_PREDICTIONS_ONLY = ("--predictions", "--repeats")
_POLICY_ONLY = (
    "--samples", "--scaffold", "--environment", "--max-turns", "--max-new-tokens",
    "--context-tokens", "--temperature", "--seed", "--slots", "--run-folder", "--predictions-out",
    "--tokenizer", "--api-key-variable", "--ray", "--price-in", "--price-out",
)  # fmt: skip


def evaluate_arguments() -> argparse.ArgumentParser:
    """The parser of `patchgym evaluate`."""
    arguments = parser("evaluate")
    add = arguments.add_argument
    add("--tasks", metavar="FILE", help="SWE-bench rows or tasks of ours; or bundled:heldout")
    add("--predictions", metavar="FILE", help="in SWE-bench's format; or gold, or empty")
    add("--policy", metavar="POLICY", help=f"roll a policy out instead: {FORMS}")
    add("--report", type=Path, metavar="FILE", help="where to write; what is done lies beside it")
    add("--repeats", type=positive, default=1, metavar="N", help="verdicts a task (default 1)")
    add(
        "--jobs", type=positive, default=os.cpu_count() or 1, metavar="N",
        help="sandboxes at once (default: this machine's cores)",
    )  # fmt: skip
    add(
        "--mirror", action="extend", nargs="+", default=[], metavar="OWNER/NAME=PATH",
        help="a local clone of a repository",
    )  # fmt: skip
    add("--recipes", type=Path, metavar="FILE", help="how environments are built")
    add("--image", default="auto", help="for tasks that name none (default: the base image)")
    add("--timeout", type=seconds, metavar="S", help="seconds for a test run (default: the task's)")
    add(
        "--reruns", type=count, default=JudgeConfig().reruns, metavar="K",
        help="times a failed test is run again, to find flaky ones (default %(default)s)",
    )  # fmt: skip
    add("--fail-under", type=share, metavar="RATE", help="exit code 1 below this rate, 0 to 1")
    add(
        "--compare", nargs="+", default=[], metavar="REPORT",
        help="with one report: compare with it afterwards; with two: compare them, judge nothing",
    )  # fmt: skip
    add("--json", action="store_true", help="the report on stdout")
    _add_policy(arguments.add_argument_group("with --policy"))
    return arguments


def _add_policy(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--samples", type=positive, default=1, metavar="K", help="rollouts a task (default 1)")
    add("--scaffold", choices=("auto", "repair", "tools", "bash"), default="auto")
    add("--environment", choices=("auto", "repair", "repository"), default="auto")
    add("--max-turns", type=positive, metavar="N", help="turns a rollout (default: 2, or 50)")
    add("--max-new-tokens", type=positive, metavar="N", help="a turn (default: 48, or 2048)")
    add("--context-tokens", type=positive, metavar="N", help="in all (default: 512, or 32768)")
    add("--temperature", type=_number, metavar="T", help="of sampling, 0 for greedy (default 1)")
    add("--seed", type=count, default=1_000_003, metavar="S", help="root of the random streams")
    add(
        "--slots", type=positive, metavar="N", help="rollouts at once (default: --jobs, or 4 times)"
    )
    add(
        "--run-folder", type=Path, metavar="DIR", help="where rollouts are kept (default: in runs/)"
    )
    add("--predictions-out", type=Path, metavar="FILE", help="the first samples' patches")
    add("--tokenizer", default="", metavar="FOLDER|GGUF", help="of the model that servers serve")
    add("--api-key-variable", metavar="NAME", help="environment variable with the servers' key")
    add(
        "--ray", default="", metavar="ADDRESS",
        help="HOST:PORT or auto: on the nodes of that cluster; --jobs counts all of theirs",
    )  # fmt: skip
    add("--price-in", type=_number, metavar="USD", help="a million prompt tokens")
    add("--price-out", type=_number, metavar="USD", help="a million sampled tokens")


def check_arguments(known: argparse.Namespace, words: Sequence[str]) -> None:
    """UserError for a flag that would have no effect."""
    useless: tuple[str, ...] = _POLICY_ONLY
    other = "--predictions"
    if known.policy is not None:
        useless, other = _PREDICTIONS_ONLY, "--policy"
    for flag in useless:
        if any(word == flag or word.startswith(f"{flag}=") for word in words):
            hint = "; use --samples" if flag == "--repeats" else ""
            raise UserError(f"{flag} has no use with {other}: leave one out{hint}")


def read_tasks(
    name: str, recipes: Path | None, mirrors: Sequence[str]
) -> tuple[tuple[Task, ...], Mapping[str, str]]:
    """The usable tasks, and by id why the others are not. Blocking."""
    clones = read_mirrors(mirrors)
    if name.startswith("bundled:"):
        return load_task_set(name), {}
    return read_task_file(Path(name), recipes=load_recipes(recipes), mirrors=clones)


def _number(word: str) -> float:
    """0 or more, and not endless."""
    number = float(word)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{word}: at least 0")
    return number
