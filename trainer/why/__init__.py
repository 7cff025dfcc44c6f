"""Why a run waits, read from its folder: in numbers, in words, and what would help.

    ledger -> facts (numbers) -> advice (what the numbers support) -> words (lines for people)

It reads runs that go on, that crashed, that an older version left, and that hold nothing yet.
"""

from __future__ import annotations

from .advice import advise
from .facts import Facts, read_facts
from .words import lines_of, record_of

__all__ = ["Facts", "advise", "lines_of", "read_facts", "record_of"]
