"""A run's optimizer steps as columns, read once: later looks read what was added since.

A column has one entry a step, None where that step has no such number. A resume takes steps back;
then the whole is read again, and gets another `origin`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from .recent import Recent
from .runs import OpenRun

Column = list[float | None]

PLAIN = (
    "reward",
    "pass_rate",
    "rollouts",
    "rollout_p50",
    "rollout_p95",
    "rollout_p99",
    "reward_p50",
    "reward_p95",
    "reward_p99",
    "sampled_tokens",
    "loss_tokens",
    "padded_tokens",
    "slot_use",
    "loop_blocked",
    "loss",
    "grad_norm",
    "entropy",
    "clipped_fraction",
    "mismatch_kl",
    "gradient_seconds",
    "update_seconds",
    "learning_rate",
)
"""Metrics that become columns under their own names."""
SUPERVISED = ("loss", "grad_norm", "learning_rate", "entropy", "learned", "seconds")
"""The same, of a supervised run's steps."""
ACCOUNTS = 20
"""Steps whose accounts are kept."""
_KEPT = 16  # runs


@dataclass(slots=True)
class Series:
    """Columns by name, all of one length."""

    origin: int
    """Changes when steps were taken back."""
    columns: dict[str, Column] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    """The learner's waiting in each step by reason, seconds."""
    staleness: Counter[int] = field(default_factory=Counter)
    """Groups trained so far, by staleness."""
    accounts: Sequence[Mapping[str, Any]] = ()
    """Where the time of the last ACCOUNTS steps went, as `idle.StepAccounts` puts it; none of runs
    of older versions."""

    @property
    def length(self) -> int:
        """Steps."""
        return len(self.columns.get("step", ()))

    def newest(self, name: str) -> float | None:
        """The last number in a column; None without any."""
        known = (value for value in reversed(self.columns.get(name, ())) if value is not None)
        return next(known, None)

    def copy(self) -> Series:
        """One that does not grow."""
        return Series(
            self.origin,
            {name: list(values) for name, values in self.columns.items()},
            {name: list(values) for name, values in self.waits.items()},
            Counter(self.staleness),
            self.accounts,
        )

    def since(self, origin: int, known: int) -> dict[str, Any]:
        """What whoever has `known` steps of `origin` lacks, as JSON types."""
        start = known if origin == self.origin and 0 <= known <= self.length else 0
        return {
            "origin": self.origin,
            "start": start,
            "columns": {name: values[start:] for name, values in self.columns.items()},
            "waits": {name: values[start:] for name, values in self.waits.items()},
        }


_origins = count(1)


@dataclass(slots=True)
class _Known:
    series: Series
    mark: tuple[int, str] | None = None
    """Number and metrics of the last step that was read."""
    cumulative: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: Recent[str, _Known] = Recent(_KEPT)


def read_series(run: OpenRun) -> Series:
    """All steps so far. Blocking."""
    known = _known.of(str(run.folder.path), lambda: _Known(Series(next(_origins))))
    with known.lock:
        if not _still_there(run, known):
            known.series, known.mark, known.cumulative = Series(next(_origins)), None, {}
        _read_on(run, known)
        return known.series.copy()


def _table(run: OpenRun) -> str:
    return "sft_steps" if run.kind == "supervised" else "steps"


def _still_there(run: OpenRun, known: _Known) -> bool:
    if known.mark is None:
        return True
    step, metrics = known.mark
    rows = run.reader.rows(f"SELECT metrics FROM {_table(run)} WHERE step = ?", (step,))
    return bool(rows) and rows[0]["metrics"] == metrics


def _read_on(run: OpenRun, known: _Known) -> None:
    if run.kind == "supervised" and not run.has_table("sft_steps"):
        return
    after = -1 if known.mark is None else known.mark[0]
    rows = run.reader.rows(
        f"SELECT step, metrics FROM {_table(run)} WHERE step > ? ORDER BY step", (after,)
    )
    if not rows:
        return
    found = json.loads(f"[{','.join(row['metrics'] for row in rows)}]")
    _add(known, [row["step"] + 1 for row in rows], found, run.kind == "supervised")
    known.mark = (rows[-1]["step"], rows[-1]["metrics"])


def _add(
    known: _Known, steps: Sequence[int], found: Sequence[Mapping[str, Any]], supervised: bool
) -> None:
    series = known.series
    names = SUPERVISED if supervised else PLAIN
    new: dict[str, Column] = {"step": [float(step) for step in steps]}
    for name in names:
        new[name] = [_number(metrics.get(name)) for metrics in found]
    if not supervised:
        new["staleness"] = [_mean(metrics.get("staleness")) for metrics in found]
        new["queue"] = [_number((metrics.get("queue") or {}).get("depth")) for metrics in found]
        new["seconds"], new["idle"] = _times(known, found)
        for metrics in found:
            for age, groups in (metrics.get("staleness") or {}).items():
                series.staleness[int(age)] += groups
    for name, values in new.items():
        series.columns.setdefault(name, []).extend(values)
    told = [
        metrics["idle"] for metrics in found[-ACCOUNTS:] if isinstance(metrics.get("idle"), dict)
    ]
    series.accounts = (*series.accounts, *told)[-ACCOUNTS:]


def _times(known: _Known, found: Sequence[Mapping[str, Any]]) -> tuple[Column, Column]:
    """Wall seconds of each step, and the learner's idle share in it; the waits by the way.

    Steps hold sums since their process began, which start anew after a resume.
    """
    seconds: Column = []
    idle: Column = []
    waits, length = known.series.waits, known.series.length
    for place, metrics in enumerate(found):
        total, waited = metrics.get("clock_seconds"), metrics.get("waited_seconds") or {}
        if total is None:
            seconds.append(None)
            idle.append(None)
            continue
        before = known.cumulative if total >= known.cumulative.get("", 0.0) else {}
        elapsed = total - before.get("", 0.0)
        gone = {name: max(0.0, value - before.get(name, 0.0)) for name, value in waited.items()}
        for name, value in gone.items():
            column = waits.setdefault(name, [])
            column.extend([0.0] * (length + place - len(column)))
            column.append(_rounded(value))
        seconds.append(_rounded(elapsed))
        idle.append(_idle_share(metrics, sum(gone.values()), elapsed))
        known.cumulative = {"": total, **waited}
    for column in waits.values():
        column.extend([0.0] * (length + len(found) - len(column)))
    return seconds, idle


def _idle_share(metrics: Mapping[str, Any], waited: float, elapsed: float) -> float | None:
    """Of a step, 0 to 1: what its own account says, else its waits."""
    account = metrics.get("idle")
    if isinstance(account, dict) and account.get("seconds"):
        trained = account.get("learner", {}).get("training", 0.0)
        return _rounded(max(0.0, 1 - trained / account["seconds"]))
    return _rounded(waited / elapsed) if elapsed > 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _rounded(value) if value == value and abs(value) != float("inf") else None


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _mean(counts: object) -> float | None:
    """Of counts by staleness."""
    if not isinstance(counts, dict) or not counts:
        return None
    total = sum(counts.values())
    return _rounded(sum(int(key) * value for key, value in counts.items()) / total)
