"""What a run does this moment, as it says itself every few seconds, and why it waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.trainer.now import seen_now
from patchgym.trainer.why import advise, read_facts

from .recent import Recent
from .runs import OpenRun, signature

_AGAIN = 5.0
"""Seconds between two looks at why a run waits, which takes more than a glance."""
_KEPT = 16  # runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What a run does."""

    phase: str
    done: int
    """Of `total`, within the phase; 0 of 0 where nothing is counted."""
    total: int
    learner: str
    """training, waiting, ...; empty outside of the training."""
    learner_seconds: float
    """Since it began with that."""
    waits_for: str
    """Whom the learner waits for, in words."""
    stages: Mapping[str, int]
    """Rollouts in flight."""
    tokens_per_second: float | None
    """Sampled."""
    account: Mapping[str, Any]
    """Where the time went so far, as the ledger's `idle`; empty where nothing was told."""


def read_present(run: OpenRun) -> Present | None:
    """What the run says; None of one that does not go on, and of older versions."""
    if run.state != "running":
        return None
    told = seen_now(run.reader, time.time())
    if told is None:
        return None
    learner = told.get("learner") or {}
    rate = told.get("tokens_per_second")
    return Present(
        phase=str(told.get("phase", "")),
        done=int(told.get("done") or 0),
        total=int(told.get("total") or 0),
        learner=str(learner.get("doing") or ""),
        learner_seconds=float(learner.get("seconds") or 0.0),
        waits_for=str(told.get("waits_for") or ""),
        stages={str(name): int(n) for name, n in (told.get("stages") or {}).items() if n},
        tokens_per_second=float(rate) if rate is not None else None,
        account=told.get("account") or {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a run waits, of its last steps."""

    steps: int
    """That were looked at."""
    waiting: Sequence[tuple[str, float]]
    """Reasons of the learner's waits with their shares of its time, the largest first."""
    idle: float
    """Share of the learner's time without an update under way."""
    advice: Sequence[str]
    """What would help, the most rewarding first."""


_known: Recent[str, tuple[float, str, Why | None]] = Recent(_KEPT)


def why_of(run: OpenRun) -> Why | None:
    """As `patchgym runs why` says it, at most some seconds old; None before the first step. Blocks
    for as long as a page may."""
    key, mark, now = str(run.folder.path), signature(run.folder), time.monotonic()
    at, seen, why = _known.get(key) or (float("-inf"), "", None)
    if seen == mark or now - at < _AGAIN:
        return why
    why = _read(run)
    _known.put(key, (time.monotonic(), mark, why))
    return why


def _read(run: OpenRun) -> Why | None:
    facts = read_facts(run.folder)
    if not facts.learner:
        return None
    return Why(
        steps=len(facts.window.steps),
        waiting=[(name, share) for name, share in facts.waiting.items() if share >= 0.01][:5],
        idle=facts.idle_share,
        advice=[each.words for each in advise(facts)][:4],
    )
