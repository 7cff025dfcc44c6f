"""SWE-bench tasks judged twice on this machine, in the same images: by us, and by swebench itself.

    python benchmarks/evaluate.py --tasks FILE --mirror OWNER/NAME=PATH [--ids ID ...] [--number N]
                                  [--jobs N] [--page PATH]

FILE holds classic rows. Each task's image is made first, by its recipe, with the repository in
/testbed; what swebench wants besides, an eval script and the name of a log parser, is written from
the row. Two diffs are judged for each task: the gold patch, and one that changes nothing that
matters. Both sides start a process of their own, and are timed from its start to its end. swebench
comes from PyPI into a virtual environment of its own, in the cache folder. The last line is
`RESULT ` and one JSON object; the exit code is 1 when a verdict differs. Needs a Docker daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from sandbox.environments import PINS, python_of

from patchgym.datasets.images import TaskImage, image_recipe
from patchgym.datasets.recipes import load_recipes
from patchgym.datasets.swebench import END, START, read_task_file
from patchgym.datasets.task import Task
from patchgym.rewards.verdict import JudgeConfig, judge
from patchgym.sandbox import BuildAccess, ImageStore, Pool

PARSERS = {"sympy/sympy": "parse_log_sympy", "django/django": "parse_log_django"}
"""Names of swebench's log parsers; for other repositories it is pytest's."""
WORKDIR = "/testbed"
UNRELATED = """diff --git a/UNRELATED b/UNRELATED
new file mode 100644
--- /dev/null
+++ b/UNRELATED
@@ -0,0 +1 @@
+It resolves nothing.
"""
KINDS = ("gold", "unrelated")
MARK = "EOF_OF_THE_TEST_PATCH"
LIMIT = 3600.0  # seconds for one side


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side said, and how long it took."""

    seconds: float
    resolved: Mapping[str, bool]
    """By `kind/task`."""
    passed: Mapping[str, frozenset[str]]
    """Tests that passed, by `kind/task`."""


class Baked:
    """Images of tasks with the repository in them, whatever their recipe says."""

    def __init__(self, store: ImageStore) -> None:
        self._store = store

    async def prepare(self, task: Task) -> TaskImage:
        """Made when missing."""
        assert task.environment is not None and task.repository is not None
        baked = await self._store.bake(
            Path(task.repository),
            task.base_commit,
            image_recipe(task.environment),
            workdir=WORKDIR,
        )
        return TaskImage(tag=baked.image, workdir=baked.workdir, snapshot=baked.snapshot)


def diff_of(task: Task, kind: str) -> str:
    """The diff to be judged."""
    return task.gold_patch if kind == "gold" else UNRELATED


def row_for_swebench(task: Task, image: str) -> dict[str, Any]:
    """A row of 5.x."""
    assert task.environment is not None
    files = " ".join(task.test_files)
    back = f"git checkout {task.base_commit} {files}"
    variables = [f"export {name}={value!r}" for name, value in task.environment.variables.items()]
    script = [
        "#!/bin/bash",
        "set -uxo pipefail",
        *variables,
        f"cd {WORKDIR}",
        back,
        f"git apply -v - <<'{MARK}'",
        task.test_patch.rstrip("\n"),
        MARK,
        f": '{START}'",
        task.environment.test_command.replace("{test_files}", files),
        f": '{END}'",
        back,
    ]
    return {
        "instance_id": task.id,
        "repo": task.repo,
        "version": task.version,
        "base_commit": task.base_commit,
        "patch": task.gold_patch,
        "test_patch": task.test_patch,
        "problem_statement": task.statement,
        "FAIL_TO_PASS": list(task.fail_to_pass),
        "PASS_TO_PASS": list(task.pass_to_pass),
        "image": image,
        "eval_script": "\n".join(script) + "\n",
        "log_parser": PARSERS.get(task.repo or "", "parse_log_pytest"),
        "eval_type": "pass_and_fail",
    }


def by_swebench(tasks: Sequence[Task], images: Mapping[str, str], jobs: int, folder: Path) -> Side:
    """Its own command, once for each kind of diff."""
    rows = [row_for_swebench(task, images[task.id]) for task in tasks]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    seconds = 0.0
    resolved: dict[str, bool] = {}
    passed: dict[str, frozenset[str]] = {}
    for kind in KINDS:
        predictions = [
            {
                "instance_id": task.id,
                "model_name_or_path": kind,
                "model_patch": diff_of(task, kind),
            }
            for task in tasks
        ]
        (folder / f"{kind}.json").write_text(json.dumps(predictions))
        command = [
            *(python_of("swebench"), "-m", "swebench.harness.run_evaluation"),
            *("--dataset_name", "rows.jsonl", "--predictions_path", f"{kind}.json"),
            *("--max_workers", jobs, "--run_id", f"bench-{kind}"),
        ]
        seconds += timed(command, folder)
        for task in tasks:
            place = folder / "logs" / "run_evaluation" / f"bench-{kind}" / kind / task.id
            report = json.loads((place / "report.json").read_text())[task.id]
            status = report.get("tests_status", {})
            key = f"{kind}/{task.id}"
            resolved[key] = report["resolved"]
            passed[key] = frozenset(
                test for each in ("FAIL_TO_PASS", "PASS_TO_PASS")
                for test in status.get(each, {}).get("success", [])
            )  # fmt: skip
    return Side(seconds=seconds, resolved=resolved, passed=passed)


def by_us(options: argparse.Namespace, tasks: Sequence[Task], folder: Path) -> Side:
    """This program again, as a child that only judges."""
    out = folder / "ours.json"
    command: list[object] = [sys.executable, Path(__file__).resolve(), "--tasks", options.tasks]
    for each in options.mirror:
        command += ["--mirror", each]
    command += ["--jobs", options.jobs, "--child", out, "--ids", *(task.id for task in tasks)]
    seconds = timed(command, Path.cwd())
    told = json.loads(out.read_text())
    return Side(
        seconds=seconds,
        resolved={key: verdict["resolved"] for key, verdict in told.items()},
        passed={key: frozenset(verdict["passed"]) for key, verdict in told.items()},
    )


def timed(command: Sequence[object], folder: Path) -> float:
    """Seconds that a command took; its output is shown when it fails."""
    started = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started


async def judge_all(tasks: Sequence[Task], jobs: int) -> dict[str, dict[str, object]]:
    """Our verdicts by `kind/task`. No test is run twice: swebench runs none twice either."""
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    told: dict[str, dict[str, object]] = {}
    async with ImageStore(access=access) as store:
        images = Baked(store)
        first = await images.prepare(tasks[0])
        work = iter([(task, kind) for kind in KINDS for task in tasks])
        async with Pool(first.spec, size=jobs) as pool:
            config = JudgeConfig(images=images, reruns=0)

            async def judging() -> None:
                for task, kind in work:
                    verdict = await judge(task, diff_of(task, kind).encode(), pool, config)
                    if verdict.status == "unknown":
                        sys.exit(f"{task.id}: {verdict.detail}")
                    passed = [test for test, each in verdict.outcomes.items() if each == "passed"]
                    told[f"{kind}/{task.id}"] = {
                        "resolved": verdict.status == "resolved",
                        "passed": passed,
                    }

            async with anyio.create_task_group() as group:
                for _ in range(jobs):
                    group.start_soon(judging)
    return told


async def make_images(tasks: Sequence[Task]) -> dict[str, str]:
    """The image of each task; not a part of what is timed."""
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store:
        images = Baked(store)
        return {task.id: (await images.prepare(task)).tag for task in tasks}


def chosen_tasks(options: argparse.Namespace) -> list[Task]:
    """The tasks to judge, in the order of `--ids` or of the file."""
    mirrors = {
        name: Path(path) for name, _, path in (each.partition("=") for each in options.mirror)
    }
    found, reasons = read_task_file(options.tasks, recipes=load_recipes(), mirrors=mirrors)
    by_id = {task.id: task for task in found}
    missing = [name for name in options.ids or () if name not in by_id]
    if missing:
        sys.exit(f"{missing[0]}: {reasons.get(missing[0], 'not in the file')}")
    chosen = [by_id[name] for name in options.ids] if options.ids else list(found)
    return chosen[: options.number]


def page(tasks: Sequence[Task], theirs: Side, ours: Side, load: float, jobs: int) -> str:
    """The dated page."""
    lines = [
        f"# Evaluation side by side, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"- `benchmarks/evaluate.py`, {len(tasks)} tasks, {jobs} at once, {os.cpu_count()} cores; "
        f"load when it began {load:.1f}",
        f"- {PINS['swebench'][0]}, python {platform.python_version()}",
        "- same images, the gold patch and one that resolves nothing, no test run twice; from the "
        "start of each side's process to its end",
        "",
        "| | seconds | a verdict | resolved |",
        "|---|---|---|---|",
    ]
    for name, side in (("swebench", theirs), ("patchgym", ours)):
        each = side.seconds / len(side.resolved)
        resolved = f"{sum(side.resolved.values())} of {len(side.resolved)}"
        lines.append(f"| {name} | {side.seconds:.1f} | {each:.1f} | {resolved} |")
    lines += [
        "",
        f"patchgym is {theirs.seconds / ours.seconds:.1f} times faster end to end.",
        "",
        "| diff / task | swebench | patchgym | tests passed, swebench | patchgym |",
        "|---|---|---|---|---|",
    ]
    for key, said in theirs.resolved.items():
        words = " | ".join("resolved" if each else "not" for each in (said, ours.resolved[key]))
        lines.append(f"| {key} | {words} | {len(theirs.passed[key])} | {len(ours.passed[key])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=Path, required=True, metavar="FILE")
    parser.add_argument("--mirror", action="append", default=[], metavar="OWNER/NAME=PATH")
    parser.add_argument("--ids", nargs="+", metavar="ID")
    parser.add_argument("--number", type=int, default=8, help="most tasks (default 8)")
    parser.add_argument("--jobs", type=int, default=2, help="at once (default 2)")
    parser.add_argument("--page", type=Path, help="where to write the dated page")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tasks = options.tasks.resolve()
    tasks = chosen_tasks(options)
    if options.child:
        options.child.write_text(json.dumps(anyio.run(judge_all, tasks, options.jobs)))
        return 0
    images = anyio.run(make_images, tasks)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-evaluate-") as name:
        theirs = by_swebench(tasks, images, options.jobs, Path(name))
        ours = by_us(options, tasks, Path(name))
    text = page(tasks, theirs, ours, load, options.jobs)
    print(text)
    if options.page:
        options.page.write_text(text)
    different = [key for key in theirs.resolved if theirs.resolved[key] != ours.resolved[key]]
    tests = sum(len(theirs.passed[key] ^ ours.passed[key]) for key in theirs.resolved)
    for key in different:
        print(f"{key}: swebench {theirs.resolved[key]}, patchgym {ours.resolved[key]}")
    result = {
        "evaluate_vs_swebench": round(theirs.seconds / ours.seconds, 2),
        "verdicts": len(theirs.resolved),
        "different_verdicts": len(different),
        "different_tests": tests,
        "seconds": {"swebench": round(theirs.seconds, 1), "patchgym": round(ours.seconds, 1)},
        "jobs": options.jobs,
        "load": round(load, 1),
        "versions": {"swebench": PINS["swebench"][0], "python": platform.python_version()},
    }
    print(f"RESULT {json.dumps(result)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
