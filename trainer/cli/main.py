"""Dispatch: which sub-command, and how its errors become one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import patchgym

# name -> (module, one line of help); the order is that of `patchgym --help`.
COMMANDS = {
    "doctor": ("doctor", "say what this machine has and lacks, and how to mend it"),
    "train": ("train", "train a policy"),
    "sft": ("sft", "imitate conversations, or a run's best rollouts"),
    "evaluate": ("evaluate", "judge predictions, or roll out a policy; compare reports"),
    "score": ("score", "score a patch on a task"),
    "runs": ("runs", "list, show, serve, check, profile, rescore, export and import runs"),
    "tasks": ("tasks", "show and validate tasks"),
    "images": ("images", "build and list sandbox images"),
    "sandbox": ("sandbox", "run a command in a sandbox; list and reap containers"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code is returned, nothing is raised for a user's mistake."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"patchgym {patchgym.__version__}")
        return 0
    if words[0] not in COMMANDS:
        return _complain(f"unknown command {words[0]!r}{_nearest(words[0])}; see patchgym --help")
    try:
        module = importlib.import_module(f"patchgym.trainer.cli.{COMMANDS[words[0]][0]}")
        code: int = module.run(words[1:])
        sys.stdout.flush()
        return code
    except BaseException as error:  # the boundary where errors become exit codes
        return _exit_code(error)


def usage() -> str:
    """The text of `patchgym --help`."""
    lines = [
        "usage: patchgym COMMAND ...",
        "",
        "Train code-fixing agents in pooled Docker sandboxes.",
        "",
        "commands:",
        *(f"  {name:<9} {text}" for name, (_, text) in COMMANDS.items()),
        "",
        "`patchgym COMMAND --help` says more. Begin with `patchgym doctor`.",
    ]
    return "\n".join(lines)


def parser(command: str) -> argparse.ArgumentParser:
    """An argument parser for one sub-command."""
    return argparse.ArgumentParser(prog=f"patchgym {command}", allow_abbrev=False)


def _nearest(word: str) -> str:
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _complain(message: str) -> int:
    print(f"patchgym: {message}", file=sys.stderr)
    return 2


def _exit_code(error: BaseException) -> int:
    from .exits import classify

    leaf = classify(error)
    if leaf is None:
        raise error
    code, message = leaf
    if message:
        print(f"patchgym: {message}", file=sys.stderr)
    if code == 141:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
