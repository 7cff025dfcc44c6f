"""Compiles the learner's step for TPUs that aren't there, and gates what comes out.

`make aot` runs all cases of `trainer/aot/cases.py`, one process each: does the step fit into
memory, and is its static estimate within 5% of the committed table in `benchmarks/aot.md`? Name
cases to run those, or describe one of your own:

    make aot CASE=v5e-4x4-7b-full
    make aot ARGS="--topology v5e:4x4 --model FOLDER --mesh 4x4x1 --keep attention --lora-rank 16"

`--write` writes the table, with what was not run again left as it was. An estimate is a comparator,
not a speed: docs/tpu.md says how it is made. Exit codes: 0 good, 1 a gate says no, 2 no answer.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from patchgym.trainer.aot.cases import CASES, Case
from patchgym.trainer.aot.compiling import NoCompiler, prepare
from patchgym.trainer.aot.page import page, read_page
from patchgym.trainer.aot.running import CaseFailed, Outcome, run_case
from patchgym.trainer.aot.table import HEADER, cells, faults
from patchgym.trainer.model.execution import Keep
from patchgym.trainer.parallel import MeshConfig

PAGE = Path(__file__).with_suffix(".md")


def main() -> int:
    """Run the cases that the command line names."""
    given = arguments()
    try:
        prepare()
        cases = chosen(given)
    except (NoCompiler, ValueError) as error:
        print(f"aot: {error}", file=sys.stderr)
        return 2
    before = read_page(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    console, table = Console(stderr=True), Table(*HEADER, title="static estimates, no speeds")
    outcomes: dict[str, Outcome] = {}
    wrong: dict[str, list[str]] = {}
    for case in cases:
        console.print(f"{case.name}: compiling", style="dim")
        try:
            outcome = run_case(case, given.deadline)
        except CaseFailed as error:
            wrong[case.name] = [str(error)]
            continue
        outcomes[case.name] = outcome
        table.add_row(*cells(case, outcome.report))
        old = None if given.write else before.get(case.name)
        wrong[case.name] = faults(outcome.report, outcome.complaints, old)
    Console().print(table)
    for name, reasons in wrong.items():
        for reason in reasons:
            console.print(f"{name}: {reason}", style="red")
    if given.write:
        old_text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        PAGE.write_text(page(old_text, outcomes, versions()), encoding="utf-8")
    print("RESULT", json.dumps(result(outcomes)))
    return 2 if len(outcomes) < len(cases) else int(any(wrong.values()))


def result(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Estimated MFU and share of memory of each case."""
    numbers = {
        name: {
            "static_mfu": round(one.report["mfu"], 4),
            "memory_share": round(one.report["memory"] / one.report["available"], 4),
        }
        for name, one in outcomes.items()
    }
    return {**numbers, "versions": versions()}


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    return {name: importlib.metadata.version(name) for name in ("jax", "libtpu")}


def chosen(given: argparse.Namespace) -> list[Case]:
    """The cases to run. Raises ValueError for a name or a mesh that there isn't."""
    if given.topology:
        sizes = given.mesh.split("x")
        if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
            raise ValueError(f"--mesh {given.mesh}: three sizes, fsdp x context x tensor, as 4x4x1")
        mesh = MeshConfig(fsdp=int(sizes[0]), context=int(sizes[1]), tensor=int(sizes[2]))
        return [
            Case(
                name="yours",
                topology=given.topology,
                model=given.model,
                mesh=mesh,
                keep=given.keep,
                lora_rank=given.lora_rank,
                tokens=given.tokens,
            )
        ]
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        raise ValueError(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return [CASES[name] for name in given.cases or CASES]


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="Compile the learner's step for TPUs.")
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--topology", default="", help="of a case of your own, such as v5e:4x4")
    parser.add_argument("--model", default="qwen2.5-coder-7b", help="a preset or a folder")
    parser.add_argument("--mesh", default="4x4x1", help="fsdp x context x tensor")
    parser.add_argument("--keep", default="inputs", choices=get_args(Keep))
    parser.add_argument("--lora-rank", type=int, default=0, help="0 trains all weights")
    parser.add_argument("--tokens", type=int, default=32768, help="of a row")
    parser.add_argument("--deadline", type=float, default=1200, help="seconds a case")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    if given.write and given.topology:
        parser.error("--write is for the cases of the table")
    return given


if __name__ == "__main__":
    sys.exit(main())
