"""The file of one rollout: a line of header, its text as JSON, its token arrays as they are.

    {"format": "patchgym rollout", "version": 2, "id": ..., "parts": [...]}\\n
    text     zlib of JSON: everything but ids and log-probabilities, of which it has the lengths
    tokens   zlib of ids, little-endian, turn by turn: context, completion; bytes of a kind together
    logprobs zlib of log-probabilities, likewise

Each part has its size and CRC-32 in the header, so that a file that was cut off, or changed, is
told from a whole one, and the text can be read without the arrays. Log-probabilities are stored in
32 bits where that is exact (samplers give float32), else in 64: what is read is what was written,
bit for bit. Version 1 was one gzip of JSON with everything in it; it is read, never written.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from patchgym.agent import Trajectory, Turn
from patchgym.rewards import Reward

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = "patchgym rollout"
VERSION = 2

_LEVEL = 6  # of zlib; see docs/ledger.md for what the others cost
_GZIP = b"\x1f\x8b"
_PARTS = ("text", "tokens", "logprobs")


class Damage(Exception):
    """The file is not what was written; says how."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollout:
    """What is kept of one rollout."""

    trajectory: Trajectory
    reward: Reward | None
    """None when it was never scored."""


def encode(stored: StoredRollout) -> bytes:
    """The file's content."""
    turns = stored.trajectory.turns
    ids = [ids for turn in turns for ids in (turn.context, turn.completion.tokens)]
    logprobs = [turn.completion.logprobs for turn in turns]
    lengths = [[len(turn.context), len(turn.completion.tokens)] for turn in turns]
    counts = [len(values) for values in logprobs]
    codes = (_fitting(("i", "q"), ids), _fitting(("f", "d"), logprobs))
    text = json.dumps({"lengths": lengths, "logprobs": counts, "record": _record(stored)})
    parts = [
        zlib.compress(part, _LEVEL)
        for part in (text.encode(), _packed(codes[0], ids), _packed(codes[1], logprobs))
    ]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "id": stored.trajectory.rollout_id,
        "parts": [
            {"name": name, "bytes": len(part), "crc32": zlib.crc32(part), "type": code}
            for name, part, code in zip(_PARTS, parts, ("", *codes), strict=True)
        ],
    }
    return b"\n".join((json.dumps(header).encode(), b"".join(parts)))


def decode(data: bytes, rollout_id: str, *, arrays: bool = True) -> StoredRollout:
    """The rollout in `data`; without `arrays` all ids and log-probabilities are left out of it.
    Raises Damage."""
    try:
        if data.startswith(_GZIP):
            return _first_version(data, arrays)
        header, parts = _split(data, rollout_id)
        text = json.loads(zlib.decompress(parts[0]))
        stored = _validated(text["record"])
        if not arrays:
            return stored
        tokens, logprobs = (
            _unpacked(part["type"], zlib.decompress(raw))
            for part, raw in zip(header["parts"][1:], parts[1:], strict=True)
        )
        return _with_arrays(stored, text["lengths"], text["logprobs"], tokens, logprobs)
    except (EOFError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damage(f"{type(error).__name__}: {error}".splitlines()[0]) from None
    except zlib.error as error:
        raise Damage(f"it can't be decompressed: {error}") from None


def _split(data: bytes, rollout_id: str) -> tuple[dict[str, Any], list[bytes]]:
    """Header and parts, each checked."""
    line, end, rest = data.partition(b"\n")
    if not end or not line.startswith(b"{"):
        raise Damage("it has no header")
    header: dict[str, Any] = json.loads(line)
    if header["format"] != FORMAT:
        raise Damage(f"it is of the format {header['format']!r}")
    if header["version"] > VERSION:
        raise Damage(f"it is of version {header['version']}, newer than {VERSION}: update patchgym")
    if header["id"] != rollout_id:
        raise Damage(f"it is of the rollout {header['id']!r}")
    sizes = [part["bytes"] for part in header["parts"]]
    if sum(sizes) != len(rest):
        raise Damage(f"its header tells of {sum(sizes)} bytes, and there are {len(rest)}")
    parts: list[bytes] = []
    for part in header["parts"]:
        raw, rest = rest[: part["bytes"]], rest[part["bytes"] :]
        if zlib.crc32(raw) != part["crc32"]:
            raise Damage(f"the checksum of its {part['name']} is wrong")
        parts.append(raw)
    return header, parts


def _record(stored: StoredRollout) -> dict[str, Any]:
    """Everything but the arrays, JSON types only."""
    trajectory = stored.trajectory
    turns = tuple(_without_arrays(turn) for turn in trajectory.turns)
    light = dataclasses.replace(stored, trajectory=dataclasses.replace(trajectory, turns=turns))
    record = dataclasses.asdict(light)
    for holder, key in _bytes_of(record):
        holder[key] = base64.b64encode(holder[key]).decode()
    return record


def _without_arrays(turn: Turn) -> Turn:
    empty = dataclasses.replace(turn.completion, tokens=(), logprobs=())
    return dataclasses.replace(turn, context=(), completion=empty)


def _with_arrays(
    stored: StoredRollout,
    lengths: Sequence[tuple[int, int]],
    counts: Sequence[int],
    tokens: array[Any],
    logprobs: array[Any],
) -> StoredRollout:
    turns: list[Turn] = []
    at = given = 0
    for turn, (context, sampled), count in zip(
        stored.trajectory.turns, lengths, counts, strict=True
    ):
        middle, end = at + context, at + context + sampled
        completion = dataclasses.replace(
            turn.completion,
            tokens=tuple(tokens[middle:end]),
            logprobs=tuple(logprobs[given : given + count]),
        )
        turns.append(
            dataclasses.replace(turn, context=tuple(tokens[at:middle]), completion=completion)
        )
        at, given = end, given + count
    if (at, given) != (len(tokens), len(logprobs)):
        raise Damage("its arrays are of other lengths than its turns")
    trajectory = dataclasses.replace(stored.trajectory, turns=tuple(turns))
    return dataclasses.replace(stored, trajectory=trajectory)


def _first_version(data: bytes, arrays: bool) -> StoredRollout:
    stored = _validated(json.loads(gzip.decompress(data)))
    if arrays:
        return stored
    turns = tuple(_without_arrays(turn) for turn in stored.trajectory.turns)
    trajectory = dataclasses.replace(stored.trajectory, turns=turns)
    return dataclasses.replace(stored, trajectory=trajectory)


def _validated(record: dict[str, Any]) -> StoredRollout:
    for holder, key in _bytes_of(record):
        holder[key] = base64.b64decode(holder[key])
    return _adapter().validate_python(record)


@cache
def _adapter() -> TypeAdapter[StoredRollout]:
    from pydantic import TypeAdapter

    return TypeAdapter(StoredRollout)


def _bytes_of(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where a rollout's record holds bytes, which JSON doesn't know."""
    trajectory = record["trajectory"]
    yield trajectory, "outcome"
    for turn in trajectory["turns"]:
        for observation in turn["observations"]:
            yield observation, "diff"


def _fitting(codes: tuple[str, str], rows: Sequence[Sequence[float]]) -> str:
    """The first of two type codes of `array` that holds all `rows` exactly."""
    narrow, wide = codes
    try:
        exact = all(tuple(array(narrow, row)) == tuple(row) for row in rows)
    except OverflowError:
        exact = False
    return narrow if exact else wide


def _packed(code: str, rows: Sequence[Sequence[float]]) -> bytes:
    """All values, first byte of each, then second of each, ...: the high ones of ids are alike."""
    values: array[Any] = array(code)
    for row in rows:
        values.extend(row)
    if sys.byteorder == "big":
        values.byteswap()
    raw = values.tobytes()
    return b"".join(raw[plane :: values.itemsize] for plane in range(values.itemsize))


def _unpacked(code: str, planes: bytes) -> array[Any]:
    values: array[Any] = array(code)
    count = len(planes) // values.itemsize
    raw = bytearray(len(planes))
    for plane in range(values.itemsize):
        raw[plane :: values.itemsize] = planes[plane * count : (plane + 1) * count]
    values.frombytes(bytes(raw))
    if sys.byteorder == "big":
        values.byteswap()
    return values
