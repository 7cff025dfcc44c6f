"""How fast the dashboard's pages are with many rollouts, and how far a page lags behind a run.

    python benchmarks/bench_dashboard.py [--rollouts 100000] [--requests 60] [--write]

A run of N rollouts in the real schema, `patchgym runs serve` in a process of its own, a client that
asks for each page again and again: milliseconds from the request to the last byte. `first` is
the first request of all, with nothing kept from an earlier look.

Then the same run goes on: another process records steps and rollouts through the real ledger, and
Chromium has the run's page open. The lag of a step is the time from its commit to the moment at
which the page shows its number (left out where there is no Chromium). `--write` puts the result in
`benchmarks/dashboard.md`. The last line is `RESULT ` and one JSON object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import platform
import random
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from dashboard_ledger import GROUP, PER_STEP, make_run

from patchgym.agent import Completion, Trajectory, Turn
from patchgym.rewards import Reward
from patchgym.trainer.heartbeat import beat
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.run_folder import RunFolder

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
PAGE = Path(__file__).with_name("dashboard.md")
STEPS = 40  # that the live run makes
_WATCH = """() => {
    window.shown = {};
    const look = () => {
        const words = document.querySelector('#part-stats .stat dd').textContent;
        const step = parseInt(words.split('/')[0].replaceAll(',', ''), 10);
        if (!(step in window.shown)) window.shown[step] = Date.now() / 1000;
    };
    new MutationObserver(look).observe(document.querySelector('#part-stats'),
        {childList: true, subtree: true});
}"""


def main() -> None:
    """Entry point."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rollouts", type=int, default=100_000)
    words.add_argument("--requests", type=int, default=60)
    words.add_argument("--write", action="store_true")
    words.add_argument("--go-on", type=Path, help=argparse.SUPPRESS)
    known = words.parse_args()
    if known.go_on:
        anyio.run(go_on, RunFolder(known.go_on))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        large = make_run(root / "large", known.rollouts)
        make_run(root / "small", min(3_000, known.rollouts), seed=1)
        made = sqlite3.connect(large / "run.sqlite")
        (rollouts,) = made.execute("SELECT COUNT(*) FROM rollouts").fetchone()
        (task,) = made.execute("SELECT task_id FROM rollouts LIMIT 1").fetchone()
        made.close()
        with serving(root) as (port, process):
            pages = ask(port, process, task, known.requests)
            lag = live(port, root / "large")
    result = {
        "rollouts": rollouts,
        "requests": known.requests,
        "pages_ms": pages,
        "worst_p95_ms": max(page["p95"] for page in pages.values()),
        "lag_seconds": lag,
        "versions": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
    }
    lines = list(table(result))
    print("\n".join(lines))
    if known.write:
        PAGE.write_text("\n".join(page_of(lines, rollouts)) + "\n")
    print("RESULT", json.dumps(result))


@contextmanager
def serving(root: Path) -> Iterator[tuple[int, int]]:
    """`patchgym runs serve` over `root`; its port and its process."""
    command = [PATCHGYM, "runs", "--folder", str(root), "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        found = re.search(r":(\d+)/", server.stdout.readline())
        assert found, "the server did not start"
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(30)


def ask(port: int, process: int, task: str, requests: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each page: the first look, percentiles of those that follow, and the median
    of the processor time that the server spent on them."""
    paths = {
        "list of runs": "/runs",
        "run": "/runs/large",
        "run, live part": "/runs/large/now",
        "run, steps for the plots": "/runs/large/series",
        "trajectories": "/runs/large/trajectories",
        "tasks": "/runs/large/tasks",
        "tasks, filtered": "/runs/large/tasks?solved=sometimes&sort=-rate&q=tree",
        "one task": f"/runs/large/task?id={task}",
        "steps": "/runs/large/steps?sort=-reward",
        "events": "/runs/large/events",
        "compare": "/compare?run=large&run=small",
        "settings": "/runs/large/settings",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times: dict[str, list[float]] = {name: [] for name in paths}
    work: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(requests + 1):  # in turn, so that noise hits all alike
        for name, path in paths.items():
            start, before = time.perf_counter(), processor_seconds(process)
            connection.request("GET", path)
            answer = connection.getresponse()
            content = answer.read()
            times[name].append(1000 * (time.perf_counter() - start))
            work[name].append(1000 * (processor_seconds(process) - before))
            if name == "run, steps for the plots":
                # As a page asks that has them already.
                origin, length = json.loads(content)["series"]["origin"], known_steps(content)
                paths["run, live part"] = f"/runs/large/now?origin={origin}&known={length}"
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}")
    return {
        name: {
            "first": round(taken[0], 1),
            **percentiles(taken[1:]),
            "processor": round(statistics.median(work[name][1:]), 1),
        }
        for name, taken in times.items()
    }


def known_steps(content: bytes) -> int:
    """Steps in the answer for the plots."""
    return len(json.loads(content)["series"]["columns"]["step"])


def processor_seconds(process: int) -> float:
    """What all threads of a process have computed so far."""
    told = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in told) / 1e9


def percentiles(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """By nearest rank."""
    ordered = sorted(values)
    return {
        f"p{share}": round(ordered[math.ceil(share / 100 * len(ordered)) - 1], digits)
        for share in (50, 95, 99)
    }


def live(port: int, folder: Path) -> dict[str, float] | None:
    """Seconds by which the run's page is behind; None without a browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        command = [sys.executable, __file__, "--go-on", str(folder)]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdin is not None
        writer.stdout.readline()  # it runs
        page.goto(f"http://127.0.0.1:{port}/runs/large")
        page.locator("path.js-line").first.wait_for(timeout=60_000)
        page.evaluate(_WATCH)
        writer.stdin.write("go\n")
        writer.stdin.flush()
        committed = json.loads(writer.stdout.readline())
        page.wait_for_timeout(3000)
        shown = page.evaluate("window.shown")
        writer.wait(30)
        browser.close()
    # A look may find two steps at once: then the page shows the later one.
    numbers = sorted(int(step) for step in shown)
    lags = []
    for step, at in committed.items():
        later = [number for number in numbers if number >= int(step)]
        lags.append(shown[str(later[0])] - at)
    return {**percentiles(lags, 3), "max": round(max(lags), 3), "steps": len(lags)}


async def go_on(folder: RunFolder) -> None:
    """Be the process that runs `folder`: record steps at uneven times, and print when each was
    committed."""
    chance = random.Random(7)
    committed: dict[int, float] = {}
    async with Ledger(folder.ledger) as ledger, anyio.create_task_group() as group:
        group.start_soon(beat, folder)
        ledger.meta("state", "running")
        await ledger.flush()
        first = sqlite3.connect(folder.ledger)
        (last, metrics) = first.execute(
            "SELECT step, metrics FROM steps ORDER BY step DESC LIMIT 1"
        ).fetchone()
        first.close()
        print("running", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        for step in range(last + 1, last + 1 + STEPS):
            await anyio.sleep(0.3 + chance.random())
            record(ledger, step, json.loads(metrics))
            await ledger.flush()
            committed[step + 1] = time.time()
        print(json.dumps(committed), flush=True)
        group.cancel_scope.cancel()


def record(ledger: Ledger, step: int, metrics: dict[str, Any]) -> None:
    """A step and the rollouts that came in meanwhile."""
    with ledger.transaction():
        for number in range(PER_STEP):
            name = f"x{step:05d}{number}"
            for member in range(GROUP):
                trajectory, reward = rollout(f"{name}-m{member}", step)
                ledger.rollout("train", name, "repair/live", member, trajectory, reward)
        ledger.step(step, {**metrics, "step": step + 1})


def rollout(name: str, version: int) -> tuple[Trajectory, Reward]:
    """A rollout of four turns."""
    completion = Completion(
        tokens=(5,) * 90, logprobs=(-0.5,) * 90, policy_version=version, finish="eos"
    )
    turn = Turn(
        context=(1,) * 400, completion=completion, text="", calls=(), observations=(),
        sample_seconds=1.0, tool_seconds=0.5,
    )  # fmt: skip
    trajectory = Trajectory(
        rollout_id=name, task_id="repair/live", seed=0, turns=(turn,) * 4, stop_reason="submitted",
        seconds=6.0,
    )  # fmt: skip
    return trajectory, Reward.of_answer(1.0, resolved=True)


def table(result: dict[str, Any]) -> Iterator[str]:
    """The result as markdown."""
    yield "| page | first | p50 | p95 | p99 | processor, p50 |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, times in result["pages_ms"].items():
        cells = " | ".join(
            f"{times[key]:.0f} ms" for key in ("first", "p50", "p95", "p99", "processor")
        )
        yield f"| {name} | {cells} |"
    yield ""
    lag = result["lag_seconds"]
    if lag is None:
        yield "Lag: not measured, there is no Chromium."
    else:
        yield (
            f"A step is on the page {lag['p50']:.2f} s after its commit (p50), {lag['p95']:.2f} s "
            f"(p95), {lag['max']:.2f} s at most, over {lag['steps']} steps."
        )


def page_of(lines: Sequence[str], rollouts: int) -> Iterator[str]:
    """The page under benchmarks/."""
    yield "# The dashboard with many rollouts"
    yield ""
    yield (
        f"`make bench-dashboard`, {time.strftime('%Y-%m-%d')}: a run of {rollouts:,} rollouts, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    )
    yield ""
    yield from lines


if __name__ == "__main__":
    main()
