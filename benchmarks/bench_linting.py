"""Linting a diff, ours against the same tools run on the whole repository before and after it.

    python benchmarks/bench_linting.py [--rounds N] [--page PATH]

The repository is this one, at HEAD; the diff touches three of its files. Contestants take turns in
one sandbox, so that a busy machine slows all. Writes `benchmarks/linting.md` unless --page says
otherwise. The last line is `RESULT ` and one JSON object. Needs a Docker daemon, and pip's index to
build the image the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox import (
    Bandit,
    BuildAccess,
    ImageStore,
    LintReport,
    Pool,
    Ruff,
    RuffFormat,
    Sandbox,
    Semgrep,
    default_linters,
    ensure_lint_image,
    lint,
    lint_spec,
)
from patchgym.sandbox.linting.semgrep import bundled_rules

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("linting.md")
LIMIT = 300.0  # seconds of one command
EDITED = ("sandbox/container.py", "sandbox/patch.py", "trainer/config.py")
ADDED = b"\n\ndef added(text: str) -> object:\n    return eval(text)\n"
RULES = "/tmp/rules/security.yaml"
SEMGREP = (
    *("semgrep", "scan", "--metrics=off", "--disable-version-check", "--disable-nosem"),
    *("--json", "--quiet", f"--config={RULES}"),
)
WHOLE: dict[str, Sequence[str]] = {
    "ruff check": ("ruff", "check", "--no-cache", "--ignore-noqa", "--select=E4,E7,E9,F,B,S", "."),
    "ruff format": ("ruff", "format", "--no-cache", "--check", "."),
    "bandit": ("bandit", "--quiet", "--ignore-nosec", "--format=json", "--recursive", "."),
    "semgrep": (*SEMGREP, "--experimental", "."),
}
ALONE: dict[str, Sequence[str]] = {
    "ruff check, S rules": ("ruff", "check", "--no-cache", "--ignore-noqa", "--select=S", "."),
    "semgrep, in Python": (*SEMGREP, "."),
}


async def whole(sandbox: Sandbox, words: Sequence[str]) -> None:
    """One tool on everything in the workdir."""
    result = await sandbox.run(words, timeout=LIMIT, output_limit=1 << 24)
    assert result.exit_code in (0, 1), result.stderr.text()


async def naive(sandbox: Sandbox, originals: dict[str, bytes]) -> None:
    """All tools on the whole repository, before and after, one after another."""
    for added in (b"", ADDED):
        for path, data in originals.items():
            await sandbox.write(path, data + added)
        for words in WHOLE.values():
            await whole(sandbox, words)


async def measure(sandbox: Sandbox, rounds: int) -> tuple[dict[str, list[float]], LintReport]:
    """Seconds by contestant, and what ours found."""
    await sandbox.checkout(ROOT, "HEAD")
    await sandbox.write(RULES, bundled_rules())
    originals = {path: await sandbox.read(path) for path in EDITED}
    reports: list[LintReport] = []

    async def ours() -> None:
        reports.append(await lint(sandbox, default_linters(), timeout=LIMIT, paths=EDITED))

    async def fast() -> None:
        await lint(sandbox, [Ruff(), RuffFormat()], timeout=LIMIT, paths=EDITED)

    async def without_native() -> None:
        linters = (Ruff(), RuffFormat(), Bandit(), Semgrep(native=False))
        await lint(sandbox, linters, timeout=LIMIT, paths=EDITED)

    contestants: dict[str, Callable[[], Awaitable[None]]] = {
        "whole repository, twice": lambda: naive(sandbox, originals),
        "patchgym": ours,
        "patchgym, semgrep in Python": without_native,
        "patchgym, ruff alone": fast,
    }
    for name, words in {**WHOLE, **ALONE}.items():
        contestants[f"whole repository, once: {name}"] = lambda words=words: whole(sandbox, words)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            began = time.perf_counter()
            await contestant()
            if number:  # the first round warms the disk's cache
                seconds[name].append(time.perf_counter() - began)
    return seconds, reports[-1]


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Medians against medians."""
    median = {name: statistics.median(times) for name, times in seconds.items()}
    once = "whole repository, once: "
    pairs = {
        "whole_repository_vs_ours": ("whole repository, twice", "patchgym"),
        "python_semgrep_vs_ours": ("patchgym, semgrep in Python", "patchgym"),
        "ours_vs_ruff_alone": ("patchgym", "patchgym, ruff alone"),
        "bandit_vs_ruff_s_rules": (f"{once}bandit", f"{once}ruff check, S rules"),
        "python_semgrep_vs_native": (f"{once}semgrep, in Python", f"{once}semgrep"),
    }
    return {name: round(median[one] / median[other], 2) for name, (one, other) in pairs.items()}


def page(seconds: dict[str, list[float]], report: LintReport, found: dict[str, float]) -> str:
    """The table."""
    versions = ", ".join(f"{name} {told}" for name, told in sorted(report.versions.items()))
    rounds = len(next(iter(seconds.values())))
    lines = [
        "# Linting a diff, side by side",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, `benchmarks/bench_linting.py --rounds {rounds}`",
        f"- {os.cpu_count()} cores; load when it began {LOAD:.1f}",
        f"- {versions}",
        f"- this repository, a diff of {len(EDITED)} files; it brings {len(report.new)} findings",
        "",
        "| | median, s | least to most |",
        "|---|---|---|",
    ]
    for name, times in seconds.items():
        spread = f"{min(times):.2f} to {max(times):.2f}"
        lines.append(f"| {name} | {statistics.median(times):.2f} | {spread} |")
    lines += ["", "| ratio of medians | |", "|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {value:g} |" for name, value in found.items()]
    return "\n".join(lines) + "\n"


async def main(arguments: argparse.Namespace) -> None:
    """Run and print."""
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store:
        image = await ensure_lint_image(store)
    async with Pool(lint_spec(image), size=1) as pool, pool.lease(timeout=60) as sandbox:
        seconds, report = await measure(sandbox, arguments.rounds)
    assert len(report.new) >= 3 * len(EDITED) and report.complete, report.text()
    found = ratios(seconds)
    text = page(seconds, report, found)
    print(text)
    await anyio.Path(arguments.page).write_text(text)
    spread = {
        name: {"least": round(min(times), 3), "most": round(max(times), 3)}
        for name, times in seconds.items()
    }
    facts = {"spread": spread, "load": LOAD, "versions": dict(report.versions)}
    print("RESULT " + json.dumps(found | facts))


if __name__ == "__main__":
    LOAD = os.getloadavg()[0]
    parser = argparse.ArgumentParser(description="Linting a diff, side by side.")
    parser.add_argument("--rounds", type=int, default=5, help="after one that does not count")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write the table")
    anyio.run(main, parser.parse_args())
