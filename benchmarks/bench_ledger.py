"""What the ledger and the trajectory store cost a run, and how fast a long run's ledger reads.

    python benchmarks/bench_ledger.py [--rollouts N] [--folder PATH] [--write]

One run, on one disk, everything real: rollouts of eight turns with five scores are recorded through
`Recorder` by an event loop; a ledger of N rollouts is filled through `Ledger`, and read by a new
process. Beside ours: one row a rollout, committed and synced where it is recorded, which is what a
ledger without a writer thread does; and a trajectory as one gzip of JSON, the format before.
`--write` puts the result in `benchmarks/ledger.md`. The last line is `RESULT ` and one JSON object.
"""

from __future__ import annotations

import argparse
import array
import base64
import gzip
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import anyio

from patchgym.agent import Completion, Observation, ToolCall, Trajectory, Turn
from patchgym.datasets.task import bundled_tasks
from patchgym.rewards import Reward, Score, Verdict
from patchgym.trainer.config import RunConfig, config_to_toml
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import WorkItem
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.rollout_file import decode, encode
from patchgym.trainer.trajectory_store import StoredRollout, TrajectoryStore

PAGE = Path(__file__).with_name("ledger.md")
GROUP, PER_STEP, TURNS = 8, 4, 8
# The quickstart's: 448 rollouts and 10 steps in 1,350 s, the fastest of the three on its page.
QUICKSTART_STEP = {"rollouts": 45, "seconds": 135.0}

QUERY = """
import json, statistics, sys, time
from pathlib import Path
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.report import summarize
from patchgym.trainer.run_folder import RunFolder

folder = RunFolder(Path(sys.argv[1]))

def opened(look):
    def run():
        with LedgerReader(folder.ledger) as reader:
            look(reader)
    return run

looks = {
    "summary": lambda: summarize(folder),
    "newest_50": opened(lambda reader: reader.newest(50)),
    "one_group": opened(lambda reader: reader.group("g06000")),
    "one_rollout": opened(lambda reader: (reader.turns("g06000-m3"), reader.scores("g06000-m3"))),
}
found = {}
for name, look in looks.items():
    seconds, computed = [], []
    for _ in range(9):
        start, before = time.perf_counter(), time.process_time()
        look()
        seconds.append(time.perf_counter() - start)
        computed.append(time.process_time() - before)
    usual = (statistics.median(seconds), statistics.median(computed))
    found[name] = [1e3 * each for each in (seconds[0], *usual)]
print(json.dumps(found))
"""
COLD = """
import os, sys, time
from pathlib import Path
from patchgym.trainer.report import summarize
from patchgym.trainer.run_folder import RunFolder

folder = RunFolder(Path(sys.argv[1]))
file = os.open(folder.ledger, os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
start = time.perf_counter()
summarize(folder)
print(1e3 * (time.perf_counter() - start))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where to write; the disk is what is measured")
    parser.add_argument("--write", action="store_true")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=known.folder) as folder:
        for name in ("events", "long"):
            (Path(folder) / name).mkdir()
        found = anyio.run(measure, Path(folder), known.rollouts)
    for name, value in found.items():
        print(f"{name:40} {value}")
    if known.write:
        PAGE.write_text(page(found, known.rollouts))
    print("RESULT", json.dumps({**found, "versions": versions()}))


async def measure(folder: Path, count: int) -> dict[str, float]:
    """All numbers, by name; milliseconds where the name says so."""
    found = {**formats(), **await events(folder / "events"), **committed_at_once(folder)}
    found["loop_vs_committed_at_once"] = ratio(found["committed_at_once_ms"], found["loop_ms"])
    found |= await long_run(folder / "long", count)
    found["query_slowest_cpu_ms"] = max(v for k, v in found.items() if k.endswith("_cpu_ms"))
    cost = QUICKSTART_STEP["rollouts"] * (found["loop_ms"] + found["writer_wall_ms"])
    cost += found["flush_ms"] + found["group_ms"] * 3 * PER_STEP
    found["share_of_a_quickstart_step"] = round(cost / 1e3 / QUICKSTART_STEP["seconds"], 6)
    return found


def rollout(draw: random.Random, name: str, task: str, turns: int = TURNS) -> StoredRollout:
    """Eight turns that read 600 ids and sample 200 each; a plausible reward."""

    def turn(version: int) -> Turn:
        tokens = tuple(int(draw.paretovariate(0.5)) % 49152 for _ in range(200))
        logprobs = array.array("f", [-(draw.expovariate(2) ** 3) for _ in tokens])
        return Turn(
            context=tuple(int(draw.paretovariate(0.5)) % 49152 for _ in range(600)),
            completion=Completion(
                tokens=tokens, logprobs=tuple(logprobs), policy_version=version, finish="eos"
            ),
            text=" ".join(draw.choice(WORDS) for _ in range(120)),
            calls=(ToolCall(name="run_tests", arguments={"path": "tests"}),),
            observations=(
                Observation(
                    kind="tests",
                    text=" ".join(draw.choice(WORDS) for _ in range(300)),
                    done=False,
                    outcomes={f"tests/test_{n}.py::test": "passed" for n in range(20)},
                ),
            ),
            sample_seconds=draw.random(),
            tool_seconds=draw.random(),
        )

    trajectory = Trajectory(
        rollout_id=name,
        task_id=task,
        seed=1,
        turns=tuple(turn(draw.randrange(3)) for _ in range(turns)),
        stop_reason=draw.choice(["submitted", "submitted", "turn_limit", "deadline"]),
        outcome=b"diff --git a/a.py b/a.py\n" * 20,
        seconds=draw.uniform(5, 300),
    )
    scores = tuple(
        Score(name=each, value=draw.random(), weight=0.2, seconds=draw.random(), version="1")
        for each in ("tests", "patch_size", "lint", "security", "turns")
    )
    verdict = Verdict(status="unresolved", evidence="report", detail="3 of 20 tests fail")
    reward = Reward(total=draw.random(), scores=scores, verdict=verdict, seconds=2.0)
    return StoredRollout(trajectory=trajectory, reward=reward)


WORDS = [f"word{n}" if n % 3 else f"self.value_{n}" for n in range(500)]


def milliseconds(count: int, act: Callable[[int], object]) -> float:
    """Of one, the median of `count`."""
    seconds: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        act(number)
        seconds.append(time.perf_counter() - start)
    return round(1e3 * statistics.median(seconds), 4)


def ratio(first: float, second: float) -> float:
    """How many times `second` is in `first`."""
    return round(first / second, 2)


def first_version(stored: StoredRollout) -> bytes:
    """As a trajectory was written before."""
    record = asdict(stored)
    trajectory = record["trajectory"]
    trajectory["outcome"] = base64.b64encode(trajectory["outcome"]).decode()
    for turn in trajectory["turns"]:
        for observation in turn["observations"]:
            observation["diff"] = base64.b64encode(observation["diff"]).decode()
    return gzip.compress(json.dumps(record).encode(), compresslevel=5, mtime=0)


def formats() -> dict[str, float]:
    """A file of both formats: bytes, and milliseconds to make and to read it."""
    stored = rollout(random.Random(0), "a", "t")
    old, new = first_version(stored), encode(stored)
    assert decode(old, "a") == decode(new, "a") == stored
    made = [milliseconds(15, lambda _, f=f: f(stored)) for f in (first_version, encode)]
    read = [milliseconds(15, lambda _, d=d: decode(d, "a")) for d in (old, new)]
    text = milliseconds(15, lambda _: decode(new, "a", arrays=False))
    return {
        "file_bytes": len(new),
        "file_bytes_before_vs_now": ratio(len(old), len(new)),
        "encode_ms": made[1],
        "encode_before_vs_now": ratio(*made),
        "read_ms": read[1],
        "read_before_vs_now": ratio(*read),
        "read_text_ms": text,
        "read_text_vs_all": ratio(read[1], text),
    }


async def events(folder: Path, count: int = 300) -> dict[str, float]:
    """Rollouts through the recorder, 32 at once: what each costs the loop's thread and others."""
    draw, task = random.Random(1), bundled_tasks("train")[0]
    stored = [rollout(draw, f"g00000-m{n}", task.id) for n in range(count)]
    items = [
        WorkItem(
            rollout_id=each.trajectory.rollout_id, group_id="g00000", task=task, member=number,
            attempt=0, seed=0,
        )
        for number, each in enumerate(stored)
    ]  # fmt: skip
    store = TrajectoryStore(folder / "trajectories")
    async with Ledger(folder / "run.sqlite") as ledger:
        recorder = Recorder(ledger, store, FailureBudgets())
        slots = anyio.Semaphore(32)

        async def one(number: int) -> None:
            reward = stored[number].reward
            assert reward is not None
            async with slots:
                await recorder.rollout("train", items[number], stored[number].trajectory, reward)

        start, thread = time.perf_counter(), time.thread_time()
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, number)
        loop, wall = time.thread_time() - thread, time.perf_counter() - start
        await ledger.flush()
        writer = ledger.statistics()

        def change(number: int) -> None:
            for state in ("pending", "ready", "taken", "committed"):
                ledger.group(f"x{number}", "t", number, state, members=["a"] * GROUP)  # type: ignore[arg-type]

        group_ms = milliseconds(300, change) / 4
        flushes: list[float] = []
        for number in range(20):
            ledger.step(number, {"reward": 0.5})
            start = time.perf_counter()
            await ledger.flush()
            flushes.append(time.perf_counter() - start)
    writes = milliseconds(50, lambda n: store.write(stored[n]))
    return {
        "loop_ms": round(1e3 * loop / count, 4),
        "writer_ms": round(1e3 * writer.cpu_seconds / count, 4),
        "writer_wall_ms": round(1e3 * writer.seconds / count, 4),
        "group_ms": round(group_ms, 4),
        "store_write_ms": writes,
        "flush_ms": round(1e3 * statistics.median(flushes), 3),
        "recorded_per_second": round(count / wall, 1),
    }


def committed_at_once(folder: Path, count: int = 100) -> dict[str, float]:
    """One row of the same width, committed and synced by whoever records it."""
    connection = sqlite3.connect(folder / "plain.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    columns = ", ".join(f"c{n}" for n in range(22))
    connection.execute(f"CREATE TABLE rollouts (id TEXT PRIMARY KEY, {columns})")
    sql = f"INSERT INTO rollouts VALUES ({', '.join('?' * 23)})"
    cost = milliseconds(count, lambda n: connection.execute(sql, (f"g{n}", *["word"] * 22)))
    connection.close()
    return {"committed_at_once_ms": cost}


async def long_run(folder: Path, count: int) -> dict[str, float]:
    """A run of `count` rollouts: how long it takes to fill, to open, to read, to back up."""
    await anyio.Path(folder / "run.toml").write_text(config_to_toml(RunConfig()))
    path, draw = folder / "run.sqlite", random.Random(2)
    kinds = [rollout(draw, "x", "t", turns) for turns in range(1, 13)]
    start = time.perf_counter()
    async with Ledger(path) as ledger:
        for group in range(count // GROUP):
            record_group(ledger, draw, kinds, group)
            if group % 50 == 0:
                await ledger.room()
        for number in range(2000):
            name, task = ("before", "after")[number % 2], f"task{number // 2 % 40}"
            values = (name, 0, task, number // 80, int(draw.random() < 0.3), f"{name}-{number}")
            ledger.record("INSERT INTO evaluations VALUES (?,?,?,?,?,?)", values)
            ledger.meta(f"evaluation.{name}", {})
        await ledger.flush()
        filled = time.perf_counter() - start
        start = time.perf_counter()
        await ledger.backup()
        backup = time.perf_counter() - start
    start = time.perf_counter()
    async with Ledger(path):
        opened = time.perf_counter() - start
    words = [sys.executable, "-c", QUERY, str(folder)]
    done = await anyio.run_process(words)
    looks: dict[str, list[float]] = json.loads(done.stdout)
    cold = [float((await anyio.run_process([*words[:2], COLD, words[3]])).stdout) for _ in range(9)]
    first = {f"query_{name}_first_ms": round(ms[0], 2) for name, ms in looks.items()}
    usual = {f"query_{name}_ms": round(ms[1], 2) for name, ms in looks.items()}
    computed = {f"query_{name}_cpu_ms": round(ms[2], 2) for name, ms in looks.items()}
    return {
        "ledger_mib": round(path.stat().st_size / 2**20, 1),
        "filled_per_second": round(count / filled),
        "query_summary_cold_least_ms": round(min(cold), 2),
        "query_summary_cold_ms": round(statistics.median(cold), 2),
        **first,
        **usual,
        **computed,
        "open_to_write_ms": round(1e3 * opened, 1),
        "backup_ms": round(1e3 * backup, 1),
    }


def record_group(
    ledger: Ledger, draw: random.Random, kinds: list[StoredRollout], number: int
) -> None:
    """A group of eight, trained four at a time."""
    name, task, step = f"g{number:05d}", f"task{number % 500}", number // PER_STEP
    ledger.group(name, task, number, "pending")
    members = [f"{name}-m{member}" for member in range(GROUP)]
    for member, rollout_id in enumerate(members):
        kind = draw.choice(kinds)
        assert kind.reward is not None
        acted = replace(kind.trajectory, rollout_id=rollout_id, seconds=draw.uniform(5, 300))
        ledger.rollout("train", name, task, member, acted, kind.reward)
    ledger.group(name, task, number, "ready", members=members, version=step)
    ledger.group(name, task, number, "taken", step=step)
    with ledger.transaction():
        ledger.group(name, task, number, "committed", step=step)
        if number % PER_STEP == PER_STEP - 1:
            ledger.step(step, {"reward": draw.random(), "words": {str(n): n for n in range(40)}})


def versions() -> dict[str, str]:
    """Of what was measured."""
    return {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}


def page(found: dict[str, float], count: int) -> str:
    """The result for people."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False, cwd=PAGE.parent,
    ).stdout.strip()  # fmt: skip
    rows = "\n".join(f"| {name} | {value:g} |" for name, value in found.items())
    kind = " ".join(f"{name} {number}" for name, number in versions().items())
    load, step = os.getloadavg()[0], QUICKSTART_STEP
    day = time.strftime("%Y-%m-%d")
    return f"""# The ledger, {day}

Command: `make bench-ledger ARGS="--rollouts {count} --write"`, at {commit} or later; {kind},
{os.cpu_count()} cores, load {load:.1f} at the end. Times are medians, in milliseconds.

| what | |
|---|---|
{rows}

- `loop_ms` is the event loop's thread for one rollout: the hand-over to a worker thread, and its
  rows (eight turns, five scores) queued. `writer_ms` is the writer thread for one, of which
  `writer_wall_ms` counts waits, too (for the disk, and for a core).
- `store_write_ms` passes in a worker thread, mostly waiting for the disk: two syncs, of the file
  and of its folder.
- `committed_at_once_ms` is one row committed and synced by whoever records it.
- `share_of_a_quickstart_step` is everything of a step of the quickstart, loop and writer together
  ({step["rollouts"]} rollouts in {step["seconds"]:.0f} s, the fastest seed of
  [its page](quickstart.md)).
- `query_*` open the ledger of {count:,} rollouts anew each time; `first` is in a new process, and
  `cpu` leaves out waits for a core, which on a machine that does other work are the most of it.
  `cold` is in a new process each time, with nothing of the file in memory: nine of them, the
  median and the `least`, which other work on the machine disturbs least.
- `*_before_vs_now` compare with one gzip of JSON a trajectory; more than 1 is better now.
"""


if __name__ == "__main__":
    main()
