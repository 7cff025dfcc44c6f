"""Mining a repository's history: what comes of it, and how long each candidate takes.

    python benchmarks/bench_mining.py REPO --repo OWNER/NAME [--limit N] [--jobs N] [--page PATH]

Writes `benchmarks/mining.md` unless --page says otherwise. The last line is `RESULT ` and one JSON
object. Needs a Docker daemon, and pip's index for the environments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("mining.md")
LINE = re.compile(r"^\[ *\d+/\d+\] (\S+) +([\d.]+) s ", re.MULTILINE)


def measure(arguments: argparse.Namespace, out: Path) -> tuple[dict[str, Any], str, float]:
    """The report, the log and the wall seconds of one run."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("patchgym")), "tasks", "mine"]
    command += [str(arguments.repository), "--repo", arguments.repo, "--out", str(out), "--json"]
    command += ["--limit", str(arguments.limit), "--jobs", str(arguments.jobs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), done.stderr, time.perf_counter() - began


def numbers(report: dict[str, Any], log: str, seconds: float, again: float) -> dict[str, Any]:
    """What the page shows."""
    times = [(word, float(took)) for word, took in LINE.findall(log)]
    tasks = [took for word, took in times if word == "task"]
    others = [took for word, took in times if word != "task"]
    return {
        "commits": report["looked_at"],
        "candidates": report["candidates"],
        "tasks": report["tasks"],
        "dropped": report["dropped"],
        "seconds": round(seconds, 1),
        "seconds_again": round(again, 1),
        "again_vs_first": round(seconds / again, 1),
        "seconds_per_task": round(statistics.median(tasks), 1) if tasks else None,
        "seconds_per_dropped_candidate": round(statistics.median(others), 1) if others else None,
    }


def page(found: dict[str, Any], arguments: argparse.Namespace, load: float) -> str:
    """The tables."""
    lines = [
        f"# Mining {arguments.repo}",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, `benchmarks/bench_mining.py REPO --repo {arguments.repo} "
        f"--limit {arguments.limit} --jobs {arguments.jobs}`",
        f"- {os.cpu_count()} cores; load when it began {load:.1f}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {found[name]} |" for name in found if name != "dropped"),
        "",
        "| dropped | commits |",
        "|---|---|",
        *(f"| {reason} | {number} |" for reason, number in found["dropped"].items()),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: argparse.Namespace) -> None:
    """Run and print."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "tasks.jsonl")
        report, log, seconds = measure(arguments, out)
        before = out.read_bytes() if out.exists() else b""
        _, _, again = measure(arguments, out)
        assert not before or out.read_bytes() == before
    found = numbers(report, log, seconds, again)
    text = page(found, arguments, load)
    print(text)
    arguments.page.write_text(text)
    print("RESULT " + json.dumps({**found, "load": load}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Mining a repository's history.")
    parser.add_argument("repository", type=Path, metavar="REPO")
    parser.add_argument("--repo", required=True, metavar="OWNER/NAME")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write the tables")
    main(parser.parse_args())
