"""The store of scores: kept across processes, bounded, and never in the way."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from patchgym.datasets.task import bundled_tasks
from patchgym.rewards import Fault, Score, ScoreStore, Verdict
from patchgym.rewards.score_store import store_key, task_digest
from patchgym.rewards.tampering import TamperFinding
from patchgym.sandbox import Bandit, Finding, Flake, LintReport, Ruff, Semgrep, Skipped, Unformatted

pytestmark = pytest.mark.anyio
TASK = bundled_tasks("train")[0]
VERDICT = Verdict(
    status="unresolved",
    evidence="report",
    outcomes={"t.py::a": "failed", "t.py::\udce9": "passed"},
    flaky={"t.py::b": Flake(runs=3, failures=1)},
    tampering=(TamperFinding(rule="x", path="a.py", line=None, message="m", disqualifies=False),),
    rung="exact",
    timings={"tests": 0.5},
    log="\x00 long " * 1000,
)
REPORT = LintReport(
    new=(
        Finding(tool="ruff", rule="F401", path="a.py", line=1, end_line=1, message="m",
                severity="note", confidence="low"),
    ),
    formatting=(Unformatted(tool="f", path="a.py", ranges=((1, 2),), was_formatted=None),),
    skipped=(Skipped(tool=None, path="a.bin", reason="binary"),),
    versions={"ruff": "1"},
)  # fmt: skip
SCORE = Score(
    name="lint", value=0.5, weight=-1.0, evidence={"a": [1, {"b": None}]},
    faults=(Fault(message="m", path="\udce9", line=2),),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ScoreStore]:
    store = ScoreStore(tmp_path / "kept")
    yield store
    store.close()


def change(path: Path, statement: str) -> None:
    """Change the file as another process might."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def keys(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {key for (key,) in database.execute("SELECT key FROM entries")}


@pytest.mark.parametrize("value", [VERDICT, REPORT, SCORE], ids=lambda value: type(value).__name__)
async def test_what_is_kept_comes_back_the_same(store: ScoreStore, value: object) -> None:
    assert await store.get("k", type(value)) is None
    await store.put("k", value)
    assert await store.get("k", type(value)) == value
    assert await store.get("another", type(value)) is None


async def test_a_second_process_finds_it(store: ScoreStore, tmp_path: Path) -> None:
    code = (
        "import sys, anyio\n"
        "from pathlib import Path\n"
        "from patchgym.rewards import ScoreStore, Verdict\n"
        "async def main():\n"
        "    store = ScoreStore(Path(sys.argv[1]))\n"
        "    for number in range(50):\n"
        "        await store.put(f'{sys.argv[2]}-{number}', Verdict(status='resolved',"
        " evidence='report'))\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "kept")]
    async with anyio.create_task_group() as group:
        for name in ("a", "b"):
            group.start_soon(anyio.run_process, [*command, name])
        for number in range(50):
            await store.put(f"c-{number}", VERDICT)
    for name in ("a", "b", "c"):
        for number in range(50):
            assert await store.get(f"{name}-{number}", Verdict) is not None, (name, number)


async def test_the_least_recently_used_go_when_it_is_full(tmp_path: Path) -> None:
    limit = 1 << 20
    store = ScoreStore(tmp_path, limit=limit)
    noise = "".join(chr(32 + (number * number * 7919 + number) % 90000) for number in range(9000))
    await store.put("first", replace(VERDICT, log=noise))
    change(store.path, "UPDATE entries SET used = used - 7200")
    await store.put("second", replace(VERDICT, log=noise + noise))
    change(store.path, "UPDATE entries SET used = used - 3600")
    assert await store.get("first", Verdict) is not None  # used: now the younger of the two
    for number in range(40):
        await store.put(str(number), replace(VERDICT, log=noise[number:]))
        if "second" not in keys(store.path):  # asking the store would be a use
            break
    assert "second" not in keys(store.path)
    assert await store.get("first", Verdict) is not None
    for number in range(200, 300):
        await store.put(str(number), replace(VERDICT, log=noise[number:]))
    assert await store.get("299", Verdict) is not None
    assert store.path.stat().st_size <= limit * 1.1
    store.close()


async def test_what_is_larger_than_its_share_is_not_kept(tmp_path: Path) -> None:
    store = ScoreStore(tmp_path, limit=1 << 14)
    await store.put("big", replace(VERDICT, outcomes={str(n): "passed" for n in range(5000)}))
    assert await store.get("big", Verdict) is None
    store.close()


@pytest.mark.parametrize("junk", [b"no database" * 999, b"SQLite format 3\0" + b"\xff" * 9999])
async def test_a_damaged_file_is_set_aside_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    (tmp_path / "scores.sqlite").write_bytes(junk)
    store = ScoreStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert await store.get("k", Verdict) is None
        await store.put("k", VERDICT)
    assert await store.get("k", Verdict) == VERDICT
    assert [record.message.count("set aside") for record in caplog.records] == [1]
    assert (tmp_path / "scores.damaged").read_bytes() == junk
    store.close()


async def test_damage_under_way_in_one_process_spares_the_file_of_another(tmp_path: Path) -> None:
    mine, other = ScoreStore(tmp_path), ScoreStore(tmp_path)
    for number in range(99):
        await mine.put(f"{number}", VERDICT)
    assert await other.get("0", Verdict) == VERDICT
    mine.close()
    with mine.path.open("r+b") as file:
        file.seek(0)
        file.write(b"\xff" * mine.path.stat().st_size)
    await anyio.Path(f"{mine.path}-wal").unlink(missing_ok=True)
    again = ScoreStore(tmp_path)
    assert await again.get("0", Verdict) is None
    await again.put("new", VERDICT)
    for number in range(99):
        await other.get(str(number), Verdict)  # from the file that was set aside
    assert await again.get("new", Verdict) == VERDICT
    assert await ScoreStore(tmp_path).get("new", Verdict) == VERDICT
    other.close()


async def test_a_damaged_entry_is_forgotten(
    store: ScoreStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put("k", VERDICT)
    change(store.path, "UPDATE entries SET value = zeroblob(99)")
    with caplog.at_level(logging.WARNING):
        assert await store.get("k", Verdict) is None
    assert "an entry is damaged" in caplog.text
    await store.put("k", VERDICT)
    assert await store.get("k", Verdict) == VERDICT


async def test_an_entry_of_another_shape_is_forgotten(store: ScoreStore) -> None:
    await store.put("k", SCORE)
    assert await store.get("k", Verdict) is None


@pytest.mark.parametrize("place", ["/proc/patchgym", "file"])
async def test_a_folder_that_can_not_be_written_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "file").write_text("")
    store = ScoreStore(tmp_path / place)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await store.put("k", VERDICT)
            assert await store.get("k", Verdict) is None
    assert [record.message.count("scores are not kept") for record in caplog.records] == [1]


async def test_a_file_that_can_not_be_written_is_still_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ScoreStore(tmp_path)
    await store.put("k", VERDICT)
    database = store._connected()
    database.execute("PRAGMA query_only = 1")
    with caplog.at_level(logging.WARNING):
        await store.put("other", VERDICT)
    assert "scores are not kept" in caplog.text
    assert await store.get("k", Verdict) == VERDICT
    store.close()


async def test_a_full_disk_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ScoreStore(tmp_path)
    await store.put("k", VERDICT)
    store._connected().execute("PRAGMA max_page_count = 8")
    with caplog.at_level(logging.WARNING):
        await store.put("big", replace(VERDICT, messages={str(n): str(n**9) for n in range(9000)}))
    assert "database or disk is full" in caplog.text
    assert await store.get("k", Verdict) == VERDICT
    store.close()


async def test_after_closing_nothing_is_kept(store: ScoreStore) -> None:
    await store.put("k", VERDICT)
    store.close()
    assert await store.get("k", Verdict) is None
    await store.put("other", VERDICT)
    assert [path.name for path in store.path.parent.iterdir() if "lock" not in path.name] == [
        "scores.sqlite"
    ]


def test_a_key_changes_with_all_that_the_value_depends_on() -> None:
    digest = task_digest(TASK)
    changed = replace(TASK, flaky={TASK.fail_to_pass[0]: 0.5})
    keys = {
        store_key("verdict 1", digest, "1" * 40, "context"),
        store_key("lint 1", digest, "1" * 40, "context"),
        store_key("verdict 1", digest, "2" * 40, "context"),
        store_key("verdict 1", digest, "1" * 40, "other"),
        store_key("verdict 1", task_digest(changed), "1" * 40, "context"),
        store_key("lint 1", digest, "1" * 40, [Ruff(), Bandit()]),
        store_key("lint 1", digest, "1" * 40, [Bandit(), Ruff()]),
        store_key("lint 1", digest, "1" * 40, [Ruff(select=("S",)), Bandit()]),
        store_key("lint 1", digest, "1" * 40, [Semgrep(rules={"a": b"1"})]),
        store_key("lint 1", digest, "1" * 40, [Semgrep(rules={"a": b"2"})]),
    }
    assert len(keys) == 10
    assert task_digest(replace(TASK, id="other", split="heldout")) == digest


def test_a_key_is_the_same_in_every_process() -> None:
    code = (
        "from patchgym.rewards.score_store import store_key, task_digest\n"
        "from patchgym.datasets.task import bundled_tasks\n"
        "from patchgym.sandbox import Ruff, Semgrep\n"
        "linters = [Ruff().tool, Ruff(), Semgrep().tool, Semgrep()]\n"
        "print(store_key('x', task_digest(bundled_tasks('train')[0]), 'tree', linters))\n"
    )
    told = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed},
                       capture_output=True, check=True).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(told) == 1
