"""`python -m patchgym.sandbox.conformance`: the suite as a table, or as one JSON document.

Exit status: 0 when nothing failed, 1 when something did, 2 when there was nothing to check.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import anyio

from patchgym.sandbox import PatchgymError

from .backends import named
from .report import Finding, Report, check
from .suite import CHECKS

MARKS = {"passed": "ok", "failed": "FAILED", "not claimed": "-"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        sys.stdout.writelines(f"{c.capability:13}{c.name:30}{c.demand}\n" for c in CHECKS)
        return 0
    out = sys.stderr if options.json else sys.stdout

    def told(finding: Finding) -> None:
        out.write(_line(finding))
        out.flush()

    async def run() -> Report:
        async with named(options.backend, options.image, options.supervisor) as backend:
            return await check(backend, only=options.only or (), told=told)

    try:
        report = anyio.run(run)
    except PatchgymError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    out.write(_sum(report))
    if options.json:
        sys.stdout.write(json.dumps(report.document(), indent=2) + "\n")
    return 1 if report.having("failed") else 0 if report.ok else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m patchgym.sandbox.conformance",
        description="Holds a sandbox back end to what it claims (docs/conformance.md).",
    )
    add = parser.add_argument
    add("--backend", default="docker", metavar="docker|local|MODULE:FACTORY")
    add("--image", metavar="TAG", help="for docker: an image with the tools that the checks need")
    add("--supervisor", default="auto", choices=("auto", "static", "python"), help="for docker")
    add("--only", action="append", metavar="NAME", help="this check; may be given again")
    add("--list", action="store_true", help="print the checks and run none")
    add("--json", action="store_true", help="one document on stdout, the table on stderr")
    return parser


def _line(finding: Finding) -> str:
    seconds = "" if finding.verdict == "not claimed" else f"{finding.seconds:.1f} s"
    head = f"{MARKS[finding.verdict]:7}{finding.capability:13}{finding.name:30}{seconds:>7}  "
    reason = f"\n       got: {finding.reason}" if finding.reason else ""
    return f"{head}{finding.demand}{reason}\n"


def _sum(report: Report) -> str:
    passed, failed, rest = (
        len(report.having("passed")),
        len(report.having("failed")),
        len(report.having("not claimed")),
    )
    return f"{passed} passed, {failed} failed, {rest} not claimed\n"


if __name__ == "__main__":
    sys.exit(main())
