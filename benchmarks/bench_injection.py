"""Bugs put into a real library: how many mutants compile, fit and hold, how diverse they are.

    python benchmarks/bench_injection.py SOURCE [--count 200] [--seed 0] [--jobs 2] [--again 20]

SOURCE is what `patchgym tasks inject` takes; `pip download --no-deps --no-binary :all: NAME` gives
an sdist with its tests. `--again` tasks are validated once more, three times each, to count flaky
ones among those that validation had let through.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", type=int, default=20)
    parser.add_argument("--out", type=Path, help="keep the tasks here (default: thrown away)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchgym-bench-") as folder:
        out = options.out or Path(folder) / "tasks.jsonl"
        print("RESULT", json.dumps(_measure(options, out)))


def _measure(options: argparse.Namespace, out: Path) -> dict[str, object]:
    started = time.monotonic()
    words = [str(options.source), "--out", str(out), "--count", str(options.count), "--json"]
    words += ["--seed", str(options.seed), "--jobs", str(options.jobs)]
    done = subprocess.run(
        [PATCHGYM, "tasks", "inject", *words], stdout=subprocess.PIPE, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"inject ended with {done.returncode}")
    seconds = time.monotonic() - started
    report = json.loads(done.stdout)
    tasks = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = {name: row.get("kept", 0) for name, row in report["kinds"].items()}
    invalid = _again(out, options)
    return {
        "source": options.source.name,
        "tasks": len(tasks),
        "tried": report["tried"],
        "compiled_share": report["compiled_share"],
        "kept_share": report["kept_share"],
        "kinds": sum(count > 0 for count in kinds.values()),
        "kept_by_kind": {name: count for name, count in kinds.items() if count},
        "files": len({task["provenance"]["path"] for task in tasks}),
        "functions": len({task["provenance"]["function"] for task in tasks}),
        "endings": report["endings"],
        "difficulty": _spread([task["difficulty"] for task in tasks]),
        "failing_tests": _spread([len(task["fail_to_pass"]) for task in tasks]),
        "checked_again": min(options.again, len(tasks)),
        "not_valid_again": invalid,
        "seconds": round(seconds),
    }


def _again(out: Path, options: argparse.Namespace) -> int:
    """How many of the tasks, evenly taken, are not valid in three more runs."""
    lines = out.read_text().splitlines(keepends=True)
    step = max(1, len(lines) // max(1, options.again))
    part = out.with_name(f"again-{out.name}")
    part.write_text("".join(lines[::step][: options.again]))
    words = [str(part), "--repeats", "3", "--jobs", str(options.jobs), "--json"]
    done = subprocess.run(
        [PATCHGYM, "tasks", "validate", *words], stdout=subprocess.PIPE, check=False
    )
    part.unlink()
    found = json.loads(done.stdout)
    return len(found["invalid"]) + len(found.get("flaky", {}))


def _spread(values: list[float]) -> dict[str, float]:
    """Least, quartiles, most."""
    ordered = sorted(values)
    names = ("least", "lower quartile", "median", "upper quartile", "most")
    places = [round(share * (len(ordered) - 1)) for share in (0, 0.25, 0.5, 0.75, 1)]
    return {name: ordered[place] for name, place in zip(names, places, strict=True)}


if __name__ == "__main__":
    main()
