"""How often tamper detection flags honest history, and how long it takes.

    python benchmarks/bench_tampering.py REPO [--limit 2000] [--skip 0] [--show]

Every commit of a local git repository that is no merge, newest first, is taken as if it were a
candidate's patch, the test files that it changes being the trusted ones. Commits that did what a
rule is about (a test skipped, a runner edited) are counted too: `--show` lists them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from patchgym.rewards.tampering import FileChange, TamperFinding, inspect_changes
from patchgym.rewards.tampering.roles import is_test_path

# Objects that a partial clone lacks stay missing; nothing is fetched.
ENVIRONMENT = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}


class Blobs:
    """Contents by object id, from one long-lived `git cat-file`."""

    def __init__(self, repository: Path) -> None:
        self._process = subprocess.Popen(
            ["git", "-C", str(repository), "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )

    def read(self, name: str) -> bytes | None:
        """The content; None when the repository lacks it. An id of zeros has none: b""."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name.encode() + b"\n")
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if header[-1] == b"missing":
            return None
        content = self._process.stdout.read(int(header[2]))
        self._process.stdout.read(1)
        return content

    def close(self) -> None:
        """End git."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--limit", type=int, default=2000, help="commits")
    parser.add_argument("--skip", type=int, default=0, help="newest commits to leave out")
    parser.add_argument("--show", action="store_true", help="every finding that disqualifies")
    options = parser.parse_args()
    print("RESULT", json.dumps(_measure(options)))


def _measure(options: argparse.Namespace) -> dict[str, object]:
    blobs = Blobs(options.repository)
    by_rule: Counter[str] = Counter()
    named: Counter[str] = Counter()
    times: list[float] = []
    flagged = missing = 0
    for commit in _commits(options.repository, options.limit, options.skip):
        changes = _changes(options.repository, commit, blobs)
        if changes is None:
            missing += 1
            continue
        existing = [c.old_path or c.path for c in changes if c.before is not None]
        trusted = {path for path in existing if is_test_path(path)}
        started = time.perf_counter()
        found = inspect_changes(changes, test_files=trusted)
        times.append(time.perf_counter() - started)
        bad = [each for each in found if each.disqualifies]
        flagged += bool(bad)
        by_rule.update({each.rule for each in bad})
        named.update({each.rule for each in found if not each.disqualifies})
        if options.show:
            _show(commit, bad)
    blobs.close()
    return _report(times, flagged, missing, by_rule, named)


def _commits(repository: Path, limit: int, skip: int) -> list[str]:
    command = ["log", "--no-merges", "--format=%H", f"--max-count={limit}", f"--skip={skip}"]
    return _git(repository, *command).decode().split()


def _changes(repository: Path, commit: str, blobs: Blobs) -> list[FileChange] | None:
    """What the commit changed; None when a content is missing, or it has no parent."""
    raw = _git(repository, "diff-tree", "-r", "-M", "--raw", "-z", "--no-abbrev",
               "--no-commit-id", commit)  # fmt: skip
    changes: list[FileChange] = []
    for mode, old, new, path, old_path in _entries(raw.split(b"\0")):
        sides = [None if set(each) == {"0"} else blobs.read(each) for each in (old, new)]
        if any(side is None and set(each) != {"0"} for side, each in zip(sides, (old, new),
                                                                         strict=True)):  # fmt: skip
            return None
        changes.append(
            FileChange(path=path, old_path=old_path, before=sides[0], after=sides[1], mode=mode)
        )
    return changes or None


def _entries(fields: list[bytes]) -> Iterator[tuple[str, str, str, str, str | None]]:
    """Mode after, object before and after, path, and path before a rename."""
    parts = iter(fields)
    for header in parts:
        if not header.startswith(b":"):
            continue
        _, mode, old, new, status = header[1:].decode().split(" ")
        path = next(parts).decode("utf-8", "surrogateescape")
        old_path = None
        if status[0] in "RC":
            old_path, path = path, next(parts).decode("utf-8", "surrogateescape")
        yield mode, old, new, path, old_path


def _git(repository: Path, *words: str) -> bytes:
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT).stdout


def _show(commit: str, found: list[TamperFinding]) -> None:
    for each in found:
        print(f"{commit[:10]} {each.rule:22} {each.path}:{each.line or ''} {each.message}")


def _report(
    times: list[float], flagged: int, missing: int, by_rule: Counter[str], named: Counter[str]
) -> dict[str, object]:
    for rule, count in by_rule.most_common():
        print(f"{rule:28} {count:6}")
    for rule, count in named.most_common():
        print(f"{rule:28} {count:6}  only named")
    micro = sorted(1e6 * each for each in times)
    return {
        "patches": len(times),
        "missing": missing,
        "flagged": flagged,
        "flagged_share": round(flagged / max(1, len(times)), 5),
        "by_rule": dict(by_rule.most_common()),
        "microseconds_median": round(statistics.median(micro)) if micro else None,
        "microseconds_p95": round(micro[int(0.95 * (len(micro) - 1))]) if micro else None,
        "microseconds_mean": round(statistics.fmean(micro)) if micro else None,
        "versions": {"python": platform.python_version()},
    }


if __name__ == "__main__":
    main()
