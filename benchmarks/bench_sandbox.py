"""Sandboxes side by side in one run: ours, and what others use.

    python benchmarks/bench_sandbox.py [--quick] [--rounds N] [--image TAG] [--page PATH]
                                       [--only PART ...]

The others come from PyPI into virtual environments of their own, in the cache folder, at pinned
versions (`sandbox/environments.py`); one that can't be had is named with the reason. Contestants
take turns, so that a busy machine slows all. A full run (about ten minutes on two cores) writes
`benchmarks/sandbox.md`; a quick one (two minutes) only prints. The last line is `RESULT ` and one
JSON object. Needs Linux, a local Docker daemon, and for `runc run` root.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import anyio
from sandbox.bench import FULL, QUICK, Bench
from sandbox.contestants import OTHERS, Child, child, ours, remove_left_over
from sandbox.environments import Unavailable, image_for_rivals
from sandbox.report import Report, page, result

from patchgym.sandbox import Engine, SandboxError, ensure_base
from sandbox import cycles, execs, goals, hostile, leases, resets, timeouts, verdicts

PAGE = Path(__file__).with_name("sandbox.md")
OURS_ALONE: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "leases": leases.measure,
    "resets": resets.measure,
    "hostile": hostile.measure,
    "verdicts": verdicts.measure,
}
PARTS = ("cycles", "execs", "timeouts", *OURS_ALONE)


@asynccontextmanager
async def rivals(bench: Bench) -> AsyncIterator[list[Child]]:
    """All that can take part; why the rest can't goes into the report."""
    async with AsyncExitStack() as stack:
        able = []
        for entry in OTHERS:
            image = bench.rivals_image if entry.prepared_image else bench.image
            try:
                if image is None:
                    raise Unavailable("no image with what it calls for")
                able.append(await stack.enter_async_context(child(entry, image)))
            except Unavailable as reason:
                bench.report.note(entry.name, "everything", reason)
        yield able


async def started(bench: Bench, others: Sequence[Child]) -> list[Child]:
    """Those whose container came up."""
    able = []
    for each in others:
        try:
            await each.start()
            able.append(each)
        except Unavailable as reason:
            bench.report.note(each.name, "start", reason)
    return able


async def attempt(bench: Bench, name: str, part: Awaitable[None]) -> None:
    """A part; what goes wrong in it is reported, and the rest goes on."""
    try:
        await part
    except* (Unavailable, SandboxError, AssertionError, OSError) as group:
        problem = group.exceptions[0]
        bench.report.note("patchgym", name, f"{type(problem).__name__}: {problem}")
    print(f"[{time.perf_counter() - BEGAN:4.0f} s] {name}", flush=True)


async def side_by_side(bench: Bench, parts: Sequence[str]) -> dict[str, str]:
    """The measurements that everybody takes part in; returns the others' versions."""
    async with rivals(bench) as others:
        versions = {key: value for each in others for key, value in each.versions.items()}
        if "cycles" in parts:
            await attempt(bench, "cycles", cycles.measure(bench, others))
        if "execs" in parts or "timeouts" in parts:
            others = await started(bench, others)
            async with ours(bench.image) as own:
                if "execs" in parts:
                    await attempt(bench, "execs", execs.measure(bench, own, others))
                if "timeouts" in parts:
                    await attempt(bench, "timeouts", timeouts.measure(bench, own, others))
    return versions


async def everything(bench: Bench, parts: Sequence[str]) -> dict[str, str]:
    """All parts; returns the others' versions."""
    versions = await side_by_side(bench, parts) if set(parts) - set(OURS_ALONE) else {}
    for name, part in OURS_ALONE.items():
        if name in parts:
            await attempt(bench, name, part(bench))
    return versions


async def main(arguments: argparse.Namespace) -> None:
    """Run and print."""
    scale = QUICK if arguments.quick else FULL
    if arguments.rounds:
        scale = dataclasses.replace(scale, rounds=arguments.rounds)
    engine, report = Engine(), Report()
    image = arguments.image or await ensure_base()
    prepared: str | None = None
    try:
        prepared = await image_for_rivals(engine, image)
    except (Unavailable, SandboxError) as reason:
        report.note("the image with what rivals call for", "everything", reason)
    bench = Bench(image=image, rivals_image=prepared, engine=engine, scale=scale, report=report)
    load = os.getloadavg()[0]
    try:
        versions = await everything(bench, arguments.only)
        versions = {
            "docker daemon": await engine.ping(),
            "runc": await goals.runc_version(),
        } | versions
    finally:
        with anyio.CancelScope(shield=True):
            await remove_left_over()
        engine.close()
    versions |= {"docker-py": version("docker"), "python": platform.python_version()}
    goals.judge(report)
    text = page(report, head=head(arguments, versions, load), reference=goals.REFERENCE)
    text = text.replace(str(Path.home()), "~")  # a reason may hold a path
    print("\n" + text)
    if arguments.page:
        arguments.page.write_text(text)
    extra = {"load": load, "seconds": round(time.perf_counter() - BEGAN), "versions": versions}
    print("RESULT " + json.dumps(result(report, goals.ratios(report)) | extra))


def head(arguments: argparse.Namespace, versions: dict[str, str], load: float) -> list[str]:
    """When, how, on what."""
    options = [each for each in ("--quick",) if arguments.quick]
    options += ["--rounds", str(arguments.rounds)] if arguments.rounds else []
    options += ["--only", *arguments.only] if len(arguments.only) < len(PARTS) else []
    names = ", ".join(f"{key} {value}" for key, value in sorted(versions.items()))
    return [
        f"- {datetime.now(UTC):%Y-%m-%d}, `{' '.join(['benchmarks/bench_sandbox.py', *options])}`",
        f"- {os.cpu_count()} cores; load when it began {load:.1f}",
        f"- {names}",
        "- ours with every limit it has; the others as they come, without network (which starts "
        "faster) where they can: not SWE-ReX, which needs a port, nor swebench",
    ]


if __name__ == "__main__":
    BEGAN = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples, no page")
    parser.add_argument("--rounds", type=int, help="execs of each contestant")
    parser.add_argument("--image", help="default: the base image, built when missing")
    parser.add_argument("--page", type=Path, help="where to write; default: sandbox.md, if full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    options = parser.parse_args()
    if options.page is None and not options.quick and len(options.only) == len(PARTS):
        options.page = PAGE
    anyio.run(main, options)
    sys.stdout.flush()
