"""`patchgym runs export` and `runs import`: trajectories, models and traces in others' formats."""

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

    from patchgym.trainer.weights.files import Precision

FORMATS = ("atif", "traj", "chat", "predictions")
"""Of trajectories; `hf` is of the model, `perfetto` of where the time went."""

_NAMED = 10
"""Skipped rows that are named one by one."""


def add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-commands' flags."""
    out = actions.add_parser("export", help="a run's trajectories or model in another format")
    out.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    out.add_argument("--format", required=True, choices=(*FORMATS, "hf", "perfetto"))
    out.add_argument("--out", type=Path, metavar="PATH", help="by default in the run's folder")
    out.add_argument("--checkpoint", metavar="best|latest|STEP", help="whose weights (hf)")
    out.add_argument("--precision", choices=("float32", "bfloat16"), help="of the weights (hf)")
    out.add_argument("--only", choices=("all", "resolved"), default="all")
    out.add_argument("--tokens", action="store_true", help="with token ids (chat, atif)")
    out.add_argument("--tokenizer", default="", metavar="FOLDER|GGUF", help="if not the run's own")
    out.add_argument("--last", metavar="10m", help="of the run's end, as 90s, 10m, 2h (perfetto)")
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
    if known.format == "hf":
        return _export_model(known)
    if known.format == "perfetto":
        return _export_trace(known)
    for flag in ("checkpoint", "precision"):
        if getattr(known, flag) is not None:
            raise UserError(f"--{flag} is for the model: use it with --format hf")
    if known.last is not None:
        raise UserError("--last is for a trace: use it with --format perfetto")
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


def _export_model(known: argparse.Namespace) -> int:
    """A checkpoint's weights, the configuration and the tokenizer as a Hugging Face folder."""
    from patchgym.trainer.trained import load_trained
    from patchgym.trainer.weights import export_folder

    if known.tokens or known.tokenizer or known.sample or known.only != "all":
        raise UserError("--tokens, --tokenizer, --sample and --only are for trajectories, not hf")
    run = find_run(known.run, known.folder)
    if not run.checkpoints.is_dir():
        raise UserError(f"{run.path}: it has no checkpoints; name a training")
    (model, params, tokenizer), step = load_trained(run, known.checkpoint or "latest")
    out = known.out or run.path / f"hf-{step}"
    precision: Precision = known.precision or "float32"
    try:
        export_folder(model, params, tokenizer, out, precision=precision)
    except OSError as error:
        raise UserError(f"{out}: can't be written: {error}; name another --out") from None
    record = {"out": str(out), "step": step, "precision": precision}
    _say(known, record, f"the weights of step {step} in {out} ({precision})", {})
    return 0


def _export_trace(known: argparse.Namespace) -> int:
    """Spans and counters of a window, for ui.perfetto.dev."""
    from patchgym.trainer.telemetry.perfetto import export_perfetto

    if known.tokens or known.tokenizer or known.sample or known.only != "all":
        raise UserError("--tokens, --tokenizer, --sample and --only are for trajectories")
    if known.checkpoint is not None or known.precision is not None:
        raise UserError("--checkpoint and --precision are for the model: use --format hf")
    run = find_run(known.run, known.folder)
    last = None if known.last is None else _seconds(known.last)
    found = export_perfetto(run, known.out or run.path / "trace.perfetto-trace", last)
    record = {
        "out": str(found.out),
        "spans": found.spans,
        "points": found.points,
        "seconds": found.seconds,
        "damaged": found.damaged,
    }
    words = (
        f"{found.spans} spans of {found.seconds:.0f} s in {found.out}; open it at ui.perfetto.dev"
    )
    skipped = {"trace": f"{found.damaged} damaged lines"} if found.damaged else {}
    _say(known, record, words, skipped)
    return 0


def _seconds(text: str) -> float:
    """A span of time as people write it; UserError for anything else."""
    number, unit = text[:-1], text[-1:]
    if text.isdigit():
        number, unit = text, "s"
    try:
        seconds = float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"--last {text}: a time such as 90s, 10m, 2h or 1d")
    return seconds


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
