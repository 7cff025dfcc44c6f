"""`patchgym doctor`: what the machine has and lacks, and the command that mends each lack."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from patchgym.trainer.doctor import Finding, examine

from .main import parser


def run(words: Sequence[str]) -> int:
    """Entry point; exit code 1 when something is lacking."""
    arguments = parser("doctor")
    arguments.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    findings = examine()
    if known.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        console = Console()
        for finding in findings:
            _print(finding, console)
    return 0 if all(finding.good for finding in findings) else 1


def _print(finding: Finding, console: Console) -> None:
    mark = ("ok  ", "green") if finding.good else ("lack", "bold red")
    line = Text.assemble(mark, f"  {finding.name:<16} {finding.text}")
    console.print(line, soft_wrap=True)
    if not finding.good:
        console.print(
            Text(f"      {finding.needed_for} needs it; mend it with: {finding.mend}"),
            soft_wrap=True,
        )
