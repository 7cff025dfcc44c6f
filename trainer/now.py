"""A run's present, kept in its ledger, for whoever looks on from another process."""

from __future__ import annotations

import time
from typing import Any

import anyio

from .ledger import Ledger, LedgerReader
from .session_state import Session

EVERY = 2.0
"""Seconds between two records."""
FRESH = 30.0
"""Seconds after which what a run said is no longer its present."""
_KEY = "now"


async def keep_now(session: Session) -> None:
    """Record the progress every few seconds, until the run is to end."""
    while session.end is None:
        if session.ledger is not None:
            note_now(session, session.ledger)
        await anyio.sleep(EVERY)


def note_now(session: Session, ledger: Ledger) -> None:
    """Record the progress."""
    ledger.meta(_KEY, {**session.progress.snapshot(), "at": time.time()})


def last_seen(reader: LedgerReader) -> dict[str, Any] | None:
    """A `Progress.snapshot` with `at`, when it was taken (seconds since the epoch); None where a
    run left none."""
    found: dict[str, Any] | None = reader.meta(_KEY)
    return found


def seen_now(reader: LedgerReader, now: float) -> dict[str, Any] | None:
    """The same of a run that goes on; None where it is older than FRESH, at `now` since the
    epoch."""
    found = last_seen(reader)
    return found if found and now - found.get("at", 0.0) < FRESH else None
