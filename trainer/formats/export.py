"""Writes a run's trajectories in one of the formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from patchgym.agent.chat import ChatTokenizer
from patchgym.trainer.agent_evaluation import is_evaluation, open_evaluation
from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.policies import TextTokenizer, fingerprint, load_chat_tokenizer
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import TrajectoryStore

from .atif import atif_document
from .chat import chat_rows
from .errors import FormatError
from .facts import RolloutFacts
from .predictions import write_predictions
from .shape import ChatShape
from .traj import traj_document

ExportFormat = Literal["atif", "traj", "chat", "predictions"]
EXPORTS: tuple[ExportFormat, ...] = get_args(ExportFormat)

_ENDINGS = {"atif": ".trajectory.json", "traj": ".traj"}


@dataclass(slots=True, kw_only=True)
class Export:
    """What an export came to."""

    out: Path
    written: int = 0
    """Trajectories; rows of predictions."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why, by rollout id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run's facts, as far as formats need them."""

    folder: RunFolder
    model: str
    scaffold: str
    environment: str
    trainable: bool
    tokenizer: str
    """Empty for text."""


def export_run(
    folder: RunFolder,
    format: ExportFormat,
    out: Path | None = None,
    *,
    only_resolved: bool = False,
    tokens: bool = False,
    tokenizer: str = "",
    sample: int = 0,
) -> Export:
    """Write the run's trajectories below `out`, in the run's own `export` folder by default.

    A chat's file has a line a segment. ATIF and SWE-agent's format have a document a trajectory:
    a file each in the folder `out`, or a line each when `out` ends in `.jsonl`. What can't be
    written is skipped and named. UserError for what can't be done at all. Blocking.
    """
    run = _facts(folder)
    if tokens and format not in ("atif", "chat"):
        raise UserError(f"--tokens: {format} has no place for ids; use chat or atif")
    if tokens and not run.trainable:
        raise UserError(f"--tokens: {run.model} answered in text: there are no token ids of it")
    if format == "predictions":
        path = out or folder.path / "export" / "predictions.jsonl"
        count = write_predictions(
            folder, path, model=run.model, sample=sample, resolved=only_resolved
        )
        return Export(out=path, written=count)
    known = _tokenizer(run, tokenizer)
    try:
        shape = ChatShape.of(known)
    except FormatError as error:
        raise UserError(f"{folder.path}: {error}") from None
    name = f"export/{format}" + (".jsonl" if format == "chat" else "")
    export = Export(out=out or folder.path / name)
    mark = fingerprint(known) if tokens else ""
    with ExitStack() as stack:
        sink = _Sink(export.out, _ENDINGS.get(format, ""), stack)
        for facts in _rollouts(run, export, only_resolved):
            rollout_id = facts.stored.trajectory.rollout_id
            try:
                documents = list(_documents(format, facts, known, shape, mark))
            except FormatError as error:
                export.skipped[rollout_id] = str(error)
                continue
            for document in documents:
                sink.write(rollout_id, document)
            export.written += 1
    return export


def _documents(
    format: ExportFormat,
    facts: RolloutFacts,
    tokenizer: ChatTokenizer,
    shape: ChatShape,
    tokens: str,
) -> Iterator[Mapping[str, Any]]:
    if format == "chat":
        yield from chat_rows(facts, tokenizer, shape, tokens=tokens)
    elif format == "atif":
        yield atif_document(facts, tokenizer, shape, tokens=tokens)
    else:
        yield traj_document(facts, tokenizer, shape)


class _Sink:
    """Lines of one file, or files of one folder."""

    def __init__(self, out: Path, ending: str, stack: ExitStack) -> None:
        self._out, self._ending = out, ending
        self._file: TextIO | None = None
        lines = not ending or out.suffix == ".jsonl"
        try:
            (out.parent if lines else out).mkdir(parents=True, exist_ok=True)
            if lines:
                self._file = stack.enter_context(out.open("w", encoding="utf-8"))
        except OSError as error:
            raise UserError(f"--out {out}: can't be written: {error.strerror}") from None

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """One document."""
        if self._file is not None:
            self._file.write(json.dumps(document) + "\n")
            return
        path = self._out / f"{name.replace('/', '.')}{self._ending}"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _rollouts(run: _Run, export: Export, only_resolved: bool) -> Iterator[RolloutFacts]:
    with LedgerReader(run.folder.ledger) as reader:
        rows = reader.rows("SELECT id, verdict FROM rollouts ORDER BY finished, id")
    store = TrajectoryStore(run.folder.trajectories)
    for row in rows:
        if only_resolved and row["verdict"] != "resolved":
            continue
        try:
            stored = store.read(row["id"])
        except RunError as error:
            export.skipped[row["id"]] = str(error)
            continue
        yield RolloutFacts(
            stored=stored,
            run=run.folder.path.name,
            model=run.model,
            scaffold=run.scaffold,
            environment=run.environment,
            trainable=run.trainable,
        )


def _facts(folder: RunFolder) -> _Run:
    config = folder.load_config()
    model, tokenizer, trainable = config.model.path, config.model.path, True
    if is_evaluation(folder):
        policy = open_evaluation(folder).policy
        if not policy:
            raise RunError(f"{folder.path}: nothing was rolled out there yet")
        model, tokenizer = str(policy["model"]), str(policy["tokenizer"])
        trainable = bool(policy["trainable"])
    scaffold = config.agent.scaffold
    if scaffold == "auto":
        scaffold = "repair" if config.environment.use == "repair" else "tools"
    return _Run(
        folder=folder,
        model=model,
        scaffold=scaffold,
        environment=config.environment.use,
        trainable=trainable,
        tokenizer=tokenizer if trainable else "",
    )


def _tokenizer(run: _Run, name: str) -> ChatTokenizer:
    if not run.trainable:
        if name:
            raise UserError(f"--tokenizer: {run.model} answered in text: it needs none")
        return TextTokenizer()
    return load_chat_tokenizer(name or run.tokenizer)
