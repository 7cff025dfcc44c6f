"""How fast the trajectory viewer answers for a run of 100,000 rollouts.

    python benchmarks/bench_trajectories.py [--rollouts N] [--each N] [--write]

`patchgym runs serve` in a process of its own, asked over HTTP, one request after the other: lists
in several orders and with several filters, places deep in the list, pages of rollouts of twenty
turns with twelve thousand ids, groups, tokens, texts. The ledger is made up in the real schema; the
files of the groups that are opened are written by the real store. `--write` puts the result in
`benchmarks/trajectories.md`. The last line is `RESULT ` and one JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import platform
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dashboard_ledger import make_run

from patchgym.agent import Completion, Observation, ToolCall, Trajectory, Turn
from patchgym.rewards import Reward, Score, Verdict
from patchgym.trainer.rollout_file import StoredRollout
from patchgym.trainer.trajectory_store import TrajectoryStore

PAGE = Path(__file__).with_name("trajectories.md")
TURNS, TESTS, OPENED = 20, 60, 12
BOUND = 0.2  # seconds, what the 95th percentile of every page has to stay under


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    arguments.add_argument("--rollouts", type=int, default=100_000)
    arguments.add_argument("--each", type=int, default=100, help="requests of each kind")
    arguments.add_argument("--write", action="store_true")
    known = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-trajectories-") as scratch:
        folder = make_run(Path(scratch) / "big", known.rollouts)
        groups = write_files(folder)
        with served(Path(scratch)) as (port, process):
            get(port, f"/runs/big/trajectories/{groups[0]}-m0/tokens?turn=1")  # reads a vocabulary
            rows = [
                (
                    kind,
                    *measure(
                        port, process, asked, known.each, folder if "goes on" in kind else None
                    ),
                )
                for kind, asked in addresses(folder, groups).items()
            ]
    for kind, wall, cpu, size in rows:
        print(f"{kind:38} {_words(wall)}  cpu {1000 * cpu:6.1f} ms  {size / 1024:7.1f} KiB")
    worst = max(percentile(wall, 95) for _, wall, _, _ in rows)
    result = {
        "rollouts": known.rollouts,
        "worst_p95_ms": round(1000 * worst, 1),
        "below_200_ms": worst < BOUND,
        "p95_ms": {kind: round(1000 * percentile(wall, 95), 1) for kind, wall, _, _ in rows},
        "cpu_ms": {kind: round(1000 * cpu, 1) for kind, _, cpu, _ in rows},
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
    }
    if known.write:
        PAGE.write_text(page(rows, result))
    print(f"RESULT {json.dumps(result)}")


def addresses(folder: Path, groups: Sequence[str]) -> dict[str, list[str]]:
    """What is asked for, by kind; round and round where a kind has several."""
    rollouts = [f"{group}-m{member}" for group in groups for member in range(8)]
    base = "/runs/big/trajectories"
    deep = json.dumps([*_middle(folder)])
    return {
        "list": [base],
        "list, of a run that goes on": [base],
        "list, filtered, of a run that goes on": [f"{base}?verdict=resolved&sort=-reward"],
        "list, by reward": [f"{base}?sort=-reward"],
        "list, by turns, filtered": [f"{base}?sort=turns&verdict=resolved&purpose=train"],
        "list, a range of reward": [f"{base}?reward=0.95..0.96"],
        "list, tasks by pattern": [f"{base}?task=repair/merge*&sort=-tokens"],
        "list, a part of an id": [f"{base}?q=77-m3", f"{base}?q=nothing"],
        "list, deep inside": [f"{base}?after={quote(deep)}"],
        "a rollout": [f"{base}/{name}" for name in rollouts],
        "a rollout, of a filter": [
            f"{base}/{name}?sort=-reward&verdict=resolved" for name in rollouts
        ],
        "a group": [f"/runs/big/groups/{group}" for group in groups],
        "tokens of a turn": [f"{base}/{name}/tokens?turn=7" for name in rollouts],
        "text of a turn": [f"{base}/{name}/text?part=turn-7" for name in rollouts],
    }  # fmt: skip


def measure(
    port: int,
    process: subprocess.Popen[str],
    asked: Sequence[str],
    times: int,
    written: Path | None,
) -> tuple[list[float], float, int]:
    """Wall seconds of each request, the server's mean CPU seconds, and the bytes of one answer.

    Before each the ledger of the run `written` is touched, as its writer would: nothing that the
    server keeps of it is of use then.
    """
    size = get(port, asked[0])
    found, before = [], cpu_seconds(process.pid)
    for number in range(times):
        if written is not None:
            os.utime(written / "run.sqlite")
        start = time.perf_counter()
        size = max(size, get(port, asked[number % len(asked)]))
        found.append(time.perf_counter() - start)
    return found, (cpu_seconds(process.pid) - before) / times, size


def get(port: int, path: str) -> int:
    """Bytes of an answer, which has to be a good one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}: {body[:500]!r}")
    return len(body)


@contextmanager
def served(root: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`patchgym runs serve` on a free port."""
    program = Path(sys.executable).with_name("patchgym")
    command = [str(program), "runs", "--folder", str(root), "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        if found is None:
            raise SystemExit(f"the server did not start: {said}")
        port = int(found[1])
        get(port, "/runs/big/trajectories")  # templates are compiled on the first
        yield port, process
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(pid: int) -> float:
    """What a process computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_files(folder: Path) -> list[str]:
    """Files of all rollouts of some groups; the groups."""
    connection = sqlite3.connect(folder / "run.sqlite")
    rows = connection.execute(
        "SELECT id, task_id FROM groups WHERE task_id IN (SELECT task_id FROM groups GROUP BY 1 "
        "ORDER BY COUNT(*) DESC, 1 LIMIT 3) ORDER BY number DESC LIMIT ?",
        (OPENED,),
    ).fetchall()
    connection.close()
    store, chance = TrajectoryStore(folder / "trajectories"), random.Random(0)
    for group, task in rows:
        for member in range(8):
            store.write(rollout(f"{group}-m{member}", task, chance))
    return [group for group, _ in rows]


def rollout(name: str, task: str, chance: random.Random) -> StoredRollout:
    """One of twenty turns: 12,000 ids, 40 kB of observations, sixty tests, a patch of two files."""
    tests = {f"tests/test_{n // 10}.py::test_{n}": chance.choice(("passed", "passed", "failed"))
             for n in range(TESTS)}  # fmt: skip
    patch = "".join(_file_diff(f"src/module_{n}.py", chance) for n in range(2))
    verdict: Any = {"status": "unresolved", "evidence": "report", "outcomes": tests}
    score = Score(name="tests", value=0.5, weight=1.0, evidence={"fail_to_pass": 4}, version="1")
    trajectory = Trajectory(
        rollout_id=name,
        task_id=task,
        seed=1,
        turns=tuple(_turn(number, chance) for number in range(TURNS)),
        stop_reason="submitted",
        outcome=patch.encode(),
        seconds=60.0,
    )
    reward = Reward(total=0.5, scores=(score,), verdict=Verdict(**verdict))
    return StoredRollout(trajectory=trajectory, reward=reward)


def _turn(number: int, chance: random.Random) -> Turn:
    sampled = 120
    text = " ".join(chance.choices(("def", "return", "value", "=", "for", "in", "x"), k=100))
    seen = "\n".join(f"{n:4} {text[:40]}" for n in range(45))
    return Turn(
        context=tuple(chance.randrange(49_000) for _ in range(480)),
        completion=Completion(
            tokens=tuple(chance.randrange(49_000) for _ in range(sampled)),
            logprobs=tuple(-chance.expovariate(2) for _ in range(sampled)),
            policy_version=3,
            finish="stop",
        ),
        text=text,
        calls=(ToolCall(name="search", arguments={"pattern": f"value_{number}"}),),
        observations=(Observation(kind="output", text=seen, done=False, tool="search"),),
        sample_seconds=2.0,
        tool_seconds=0.5,
    )


def _file_diff(path: str, chance: random.Random) -> str:
    rows = [f" context {n}\n-old {chance.random()}\n+new {chance.random()}\n" for n in range(20)]
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,40 +1,40 @@\n{''.join(rows)}"


def _middle(folder: Path) -> tuple[float, str]:
    connection = sqlite3.connect(folder / "run.sqlite")
    sql = "SELECT finished, id FROM rollouts ORDER BY finished LIMIT 1 OFFSET 40000"
    row = (
        connection.execute(sql).fetchone()
        or connection.execute("SELECT finished, id FROM rollouts LIMIT 1").fetchone()
    )
    connection.close()
    return row[0], row[1]


def percentile(values: Sequence[float], percent: int) -> float:
    """By the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, percent * len(ordered) // 100)]


def _words(wall: Sequence[float]) -> str:
    return "  ".join(f"p{p} {1000 * percentile(wall, p):6.1f} ms" for p in (50, 95, 99))


def page(rows: Sequence[tuple[str, list[float], float, int]], result: dict[str, Any]) -> str:
    """`benchmarks/trajectories.md`."""
    lines = [
        f"| {kind} | {1000 * percentile(wall, 50):.1f} | {1000 * percentile(wall, 95):.1f} | "
        f"{1000 * percentile(wall, 99):.1f} | {1000 * cpu:.1f} | {size / 1024:.0f} |"
        for kind, wall, cpu, size in rows
    ]
    versions = " ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"""# The trajectory viewer, {datetime.date.today().isoformat()}

Command: `make bench-trajectories ARGS="--rollouts {result["rollouts"]} --write"`; {versions},
{os.cpu_count()} cores, load {result["load"]:.1f} at the end. Milliseconds of a request over HTTP,
one after the other, and the CPU time that the server spent on one; a rollout has {TURNS} turns and
12,000 ids. Where a run goes on, nothing that the server keeps of its ledger is of use.

| page | p50 | p95 | p99 | CPU | KiB |
|---|---|---|---|---|---|
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    main()
