"""A change that was kept is the change that was read; `test_changes` asks that of all its diffs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from changes import change

from patchgym.rewards import Change, ScoreStore
from patchgym.rewards.kept_change import KeptChange, kept, opened

pytestmark = pytest.mark.anyio


def test_new_gone_and_binary_files_come_back() -> None:
    made = change({"old.py": "a\nb\n", "x.bin": b"\0\1"}, {"new.py": "c\n", "x.bin": b"\0\2"})
    small = kept(made)
    assert small is not None and opened(small) == made


def test_what_can_not_be_had_back_is_not_kept() -> None:
    made = change({}, {"new.py": "c\n"})
    assert kept(replace(made, cut="100 of 600 files")) is None
    (file,) = made.files
    too_large = replace(file, after=b"", binary=True)
    assert kept(replace(made, files=(too_large,))) is None


async def test_the_store_gives_it_back(tmp_path: Path) -> None:
    made = Change(tree="t", problem="no such file: caf\udce9")
    small = kept(made)
    assert small is not None
    store = ScoreStore(tmp_path)
    await store.put("key", small)
    assert await store.get("key", KeptChange) == small
    store.close()
