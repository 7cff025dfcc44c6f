"""Reads other people's trajectories for a warm start: JSON lines of ids with a loss mask."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from patchgym.agent.chat import ChatTokenizer
from patchgym.trainer.errors import UserError

from .errors import FormatError
from .reading import Reader

ImportFormat = Literal["atif", "chat"]
IMPORTS: tuple[ImportFormat, ...] = get_args(ImportFormat)


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """What an import came to."""

    out: Path
    tokenizer: str
    """Fingerprint of the tokenizer that the ids are of."""
    sequences: int = 0
    exact: int = 0
    """Of these, with the ids that the file had; the others were rendered from messages."""
    tokens: int = 0
    learned: int = 0
    """Tokens in the loss."""
    bad: dict[str, str] = field(default_factory=dict)
    """Why a row was skipped, by file and line."""


def import_file(
    source: Path, format: ImportFormat, out: Path, tokenizer: ChatTokenizer
) -> ImportResult:
    """Write a line for each sequence: `tokens`, `loss_mask` (0 or 1), `tokenizer`, `source`.

    A chat's file is JSON lines; ATIF is a document, JSON lines of them, or a folder of either.
    Bad rows are skipped and named. UserError when nothing can be read or written. Blocking.
    """
    reader = Reader.of(tokenizer)
    read = reader.chat if format == "chat" else reader.atif
    result = ImportResult(out=out, tokenizer=reader.fingerprint)
    lines: list[str] = []
    for where, row in _rows(source, result):
        try:
            if not isinstance(row, dict):
                raise FormatError("not a JSON object")
            found = list(read(row))
        except FormatError as error:
            result.bad[where] = str(error)
            continue
        for sequence, exact in found:
            result.sequences += 1
            result.exact += exact
            result.tokens += len(sequence.tokens)
            result.learned += sum(sequence.loss_mask)
            line = {
                "tokens": list(sequence.tokens),
                "loss_mask": [int(each) for each in sequence.loss_mask],
                "tokenizer": reader.fingerprint,
                "source": _name(row, where),
            }
            lines.append(json.dumps(line) + "\n")
    _write(out, lines)
    return result


def _rows(source: Path, result: ImportResult) -> Iterator[tuple[str, Any]]:
    """Each document with its place; what is no JSON is noted."""
    if source.is_dir():
        files = sorted(path for path in source.rglob("*.json*") if path.is_file())
        if not files:
            raise UserError(f"{source}: no JSON file in it")
    else:
        files = [source]
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            result.bad[str(path)] = "not UTF-8"
            continue
        yield from _documents(path, text, result)


def _documents(path: Path, text: str, result: ImportResult) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".json":
        try:
            yield str(path), json.loads(text)
        except (ValueError, RecursionError) as error:
            result.bad[str(path)] = f"not JSON: {error}"
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{path}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            result.bad[f"{path}:{number}"] = f"not JSON: {error}"


def _name(row: Mapping[str, Any], where: str) -> str:
    """What the row calls itself, else its place."""
    for key in ("id", "trajectory_id", "session_id"):
        if isinstance(row.get(key), str):
            return str(row[key])
    return where


def _write(out: Path, lines: list[str]) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise UserError(f"--out {out}: can't be written: {error.strerror}") from None
