"""Conversations out of files: chats, ATIF documents, and sequences that an import wrote.

A line that can't be read at all is an error that names it: the file is damaged, and what else it
lost is not known. A conversation that can't be used is dropped, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from patchgym.trainer.errors import UserError
from patchgym.trainer.formats import FormatError, Reader, SftSequence

from .dataset import Example, Gathered, prompt_key


def read_files(path: Path, reader: Reader, into: Gathered) -> None:
    """Add what `path` holds: a document (`.json`), lines of them, or a folder of either.

    Raises UserError, with file and line, for what is no JSON and for ids of another vocabulary.
    """
    for where, row in _documents(path):
        if not isinstance(row, dict):
            raise UserError(f"{where}: not a JSON object; write one conversation a line")
        try:
            into.examples.append(_example(row, where, reader))
        except FormatError as error:
            into.dropped[where] = str(error)


def _example(row: Mapping[str, Any], where: str, reader: Reader) -> Example:
    if "schema_version" in row:
        found, labels = list(reader.atif(row)), _ours(row)
    elif isinstance(row.get("tokens"), list):
        found, labels = [(_sequence(row, where, reader.fingerprint), True)], {}
    else:
        found, labels = list(reader.chat(row)), row
    task = labels.get("task_id")
    sequences = tuple(sequence for sequence, _ in found)
    return Example(
        sequences=sequences,
        source=where,
        task=task if isinstance(task, str) else prompt_key(sequences[0]),
        exact=all(exact for _, exact in found),
    )


def _ours(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our own facts in an ATIF document."""
    extra = document.get("extra")
    known = extra.get("patchgym") if isinstance(extra, dict) else None
    return known if isinstance(known, dict) else {}


def _sequence(row: Mapping[str, Any], where: str, fingerprint: str) -> SftSequence:
    """A line of `patchgym runs import`: ids, which mean something to their own tokenizer only."""
    theirs = row.get("tokenizer")
    if theirs != fingerprint:
        raise UserError(
            f"{where}: ids of the tokenizer {theirs}, the model's is {fingerprint}: import the "
            "conversations again with the model's own tokenizer"
        )
    ids, mask = row["tokens"], row.get("loss_mask")
    for each in (ids, mask):
        if not isinstance(each, list) or not all(type(item) is int for item in each):
            raise FormatError("`tokens` and `loss_mask` are no lists of whole numbers")
    return SftSequence(tokens=tuple(ids), loss_mask=tuple(bool(each) for each in mask or ()))


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    if not path.is_dir():
        yield from _of_file(path)
        return
    files = sorted(each for each in path.rglob("*.json*") if each.is_file())
    if not files:
        raise UserError(f"{path}: no JSON file in it")
    for each in files:
        yield from _of_file(each)


def _of_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None
    if path.suffix == ".json":
        yield str(path), _parsed(data, str(path))
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _parsed(line, where)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8; write the file anew, or take the line out") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); mend the line or take it out") from None
