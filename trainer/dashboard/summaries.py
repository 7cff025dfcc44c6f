"""A line about each run, for the list: read again only when its ledger was written to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchgym.trainer.errors import UserError
from patchgym.trainer.heartbeat import state_now
from patchgym.trainer.run_folder import RunFolder

from .now import Measured, read_heldout
from .recent import Recent
from .runs import Kind, OpenRun, kind_of, open_folder, signature

POINTS = 60
"""Of the small curve."""
_KEPT = 2000  # summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in one line."""

    name: str
    kind: Kind
    state: str
    """As in `OpenRun.state`; `unreadable` with `problem`."""
    began: float
    """Seconds since the epoch."""
    problem: str = ""
    """Why its ledger can't be read."""
    steps: int = 0
    planned: int | None = None
    curve: tuple[float | None, ...] = ()
    """Mean rewards of steps (of a supervised run losses), at most POINTS, in order."""
    last: float | None = None
    """The newest of them."""
    heldout: tuple[Measured, ...] = ()
    idle: float | None = None
    """The learner's share, 0 to 1."""
    rollouts: int = 0
    seconds: float = 0.0
    """As of its last end."""

    @property
    def rate(self) -> float | None:
        """The last held-out pass rate."""
        return self.heldout[-1].pass_rate if self.heldout else None


_known: Recent[str, tuple[str, Summary]] = Recent(_KEPT)


def summary_of(folder: RunFolder) -> Summary:
    """The line about a run, as of now, whatever state it is in. Blocking."""
    mark, key = signature(folder), str(folder.path)
    known = _known.get(key)
    if known is None or known[0] != mark:
        known = (mark, _read(folder))
        _known.put(key, known)
    summary = known[1]
    return replace(summary, state=state_now(folder, summary.state))


def _read(folder: RunFolder) -> Summary:
    blank = Summary(
        name=folder.path.name, kind=kind_of(folder), state="unreadable", began=_began(folder)
    )
    if not folder.ledger.is_file():
        return replace(blank, state="empty", problem="it has no ledger yet")
    try:
        with open_folder(folder) as run:
            return _summarize(run, blank)
    except UserError as error:
        return replace(blank, problem=str(error))


def _began(folder: RunFolder) -> float:
    try:
        return folder.config.stat().st_mtime
    except OSError:
        return 0.0


def _summarize(run: OpenRun, blank: Summary) -> Summary:
    table, name = ("sft_steps", "loss") if run.kind == "supervised" else ("steps", "reward")
    steps, curve, last = _curve(run, table, name) if run.has_table(table) else (0, (), None)
    (rollouts,) = run.reader.rows("SELECT COUNT(*) FROM rollouts")[0]
    began = run.reader.rows("SELECT MIN(time) AS time FROM events WHERE kind = 'began'")
    return replace(
        blank,
        state=run.reader.meta("state", "unknown"),
        began=began[0]["time"] or blank.began,
        steps=steps,
        planned=_planned(run),
        curve=curve,
        last=last,
        heldout=tuple(read_heldout(run, steps)) if run.kind == "training" else (),
        idle=run.reader.meta("idle", {}).get("idle_share"),
        rollouts=rollouts,
        seconds=run.reader.meta("seconds", 0.0),
    )


def _planned(run: OpenRun) -> int | None:
    if run.kind == "evaluation":
        return None
    if run.kind == "supervised":
        found: Any = run.reader.meta("sft", {}).get("steps")
    else:
        section = run.settings.get("run")
        found = section.get("steps") if isinstance(section, dict) else None
    return found if isinstance(found, int) else None


def _curve(
    run: OpenRun, table: str, name: str
) -> tuple[int, tuple[float | None, ...], float | None]:
    (count, newest) = run.reader.rows(f"SELECT COUNT(*), MAX(step) FROM {table}")[0]
    if not count:
        return 0, (), None
    every = -(-count // POINTS)
    sql = (
        f"SELECT json_extract(metrics, '$.{name}') AS value FROM {table} "
        "WHERE step % ? = ? ORDER BY step"
    )
    values = [row["value"] for row in run.reader.rows(sql, (every, newest % every))]
    last = next((value for value in reversed(values) if value is not None), None)
    return count, tuple(values), last


def sparkline(values: Sequence[float | None], top: float | None = None) -> str:
    """Points of a small curve in a box of 120 by 22, as SVG has them, from 0 or the lowest to `top`
    or the highest; what is missing is left out."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if not known:
        return ""
    low = min([0.0, *(value for _, value in known)])
    high = max([value for _, value in known] + ([top] if top is not None else []))
    width, whole = 118 / max(1, len(values) - 1), (high - low) or 1.0
    points = [
        f"{1 + place * width:.1f},{21 - 20 * ((value - low) / whole):.1f}" for place, value in known
    ]
    return " ".join(points * 2 if len(points) == 1 else points)


def digest(summaries: Sequence[Summary]) -> str:
    """Changes with what a list of them shows."""
    return hashlib.sha256(repr(summaries).encode()).hexdigest()[:16]
