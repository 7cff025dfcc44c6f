"""`patchgym runs export` and `runs import`: trajectories in other people's formats."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from patchgym.trainer.errors import UserError
from patchgym.trainer.run_folder import find_run

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMED = 10
"""Skipped rows that are named one by one."""


def add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-commands' flags."""
    out = actions.add_parser("export", help="write a run's trajectories in another format")
    out.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    out.add_argument("--format", required=True, choices=("atif", "traj", "chat", "predictions"))
    out.add_argument("--out", type=Path, metavar="FILE", help="by default in the run's folder")
    out.add_argument("--only", choices=("all", "resolved"), default="all")
    out.add_argument("--tokens", action="store_true", help="with token ids (chat, atif)")
    out.add_argument("--tokenizer", default="", metavar="FOLDER|GGUF", help="if not the run's own")
    out.add_argument("--sample", type=int, default=0, metavar="N", help="of predictions, from 0")
    out.add_argument("--json", action="store_true")
    into = actions.add_parser("import", help="make sequences for a warm start of a file")
    into.add_argument("format", choices=("atif", "chat"))
    into.add_argument("file", type=Path)
    into.add_argument("--out", type=Path, required=True, metavar="FILE")
    into.add_argument("--tokenizer", required=True, metavar="FOLDER|GGUF", help="the model's")
    into.add_argument("--json", action="store_true")


def run_export(known: argparse.Namespace) -> int:
    """`runs export`; exit code 2 when nothing was written."""
    from patchgym.trainer.formats import export_run

    if known.sample < 0:
        raise UserError(f"--sample {known.sample}: at least 0")
    if known.sample and known.format != "predictions":
        raise UserError("--sample is for predictions; other formats have every trajectory")
    export = export_run(
        find_run(known.run, known.folder),
        known.format,
        known.out,
        only_resolved=known.only == "resolved",
        tokens=known.tokens,
        tokenizer=known.tokenizer,
        sample=known.sample,
    )
    what = "predictions" if known.format == "predictions" else "trajectories"
    record = {"out": str(export.out), "written": export.written, "skipped": export.skipped}
    _say(known, record, f"{export.written} {what} in {export.out}", export.skipped)
    if not export.written:
        print(f"patchgym: no {what} to write", file=sys.stderr)
    return 0 if export.written else 2


def run_import(known: argparse.Namespace) -> int:
    """`runs import`; exit code 2 when no row could be used."""
    from patchgym.trainer.formats import import_file
    from patchgym.trainer.policies import load_chat_tokenizer

    tokenizer = load_chat_tokenizer(known.tokenizer)
    result = import_file(known.file, known.format, known.out, tokenizer)
    record = {
        "out": str(result.out),
        "sequences": result.sequences,
        "exact": result.exact,
        "tokens": result.tokens,
        "learned_tokens": result.learned,
        "tokenizer": result.tokenizer,
        "skipped": result.bad,
    }
    words = (
        f"{result.sequences} sequences ({result.exact} with their own ids) of {result.tokens:,} "
        f"tokens, {result.learned:,} of them to learn, in {result.out}"
    )
    _say(known, record, words, result.bad)
    if not result.sequences:
        print("patchgym: no row could be used", file=sys.stderr)
    return 0 if result.sequences else 2


def _say(
    known: argparse.Namespace, record: Mapping[str, Any], words: str, skipped: Mapping[str, str]
) -> None:
    errors = Console(stderr=True)
    for place, why in list(skipped.items())[:_NAMED]:
        errors.print(f"{place}: skipped: {why}", markup=False, highlight=False, soft_wrap=True)
    if len(skipped) > _NAMED:
        errors.print(f"and {len(skipped) - _NAMED} more skipped", highlight=False)
    if known.json:
        print(json.dumps(record, indent=2))
    else:
        more = f"; {len(skipped)} skipped" if skipped else ""
        Console().print(words + more, markup=False, highlight=False, soft_wrap=True)
