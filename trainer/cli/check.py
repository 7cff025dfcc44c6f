"""`patchgym runs check`: does a run keep what is promised, whatever it lived through."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

import anyio
from rich.console import Console

from patchgym.sandbox import Engine, EngineUnavailable
from patchgym.trainer.agent_evaluation.folder import is_evaluation
from patchgym.trainer.errors import RunError
from patchgym.trainer.heartbeat import state_now
from patchgym.trainer.invariants import Finding, check_containers, check_facts
from patchgym.trainer.run_facts import Facts, read_facts
from patchgym.trainer.run_folder import find_run
from patchgym.trainer.sft import is_supervised

_SHOWN = 20


def add_check(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-command's flags."""
    check = actions.add_parser("check", help="prove that a run lost nothing and did nothing twice")
    check.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    check.add_argument("--json", action="store_true")


def run_check(known: argparse.Namespace) -> int:
    """`runs check`; exit code 1 when an invariant is broken."""
    folder = find_run(known.run, known.folder)
    if is_evaluation(folder) or is_supervised(folder):
        raise RunError(f"{folder.path}: only a training has groups to check")
    facts = read_facts(folder)
    findings = [*check_facts(facts), *anyio.run(_containers, facts)]
    state = state_now(folder, facts.state)
    broken = sum(len(finding.broken) for finding in findings)
    if known.json:
        shown = [asdict(finding) for finding in findings]
        record = {"run": str(folder.path), "state": state, "broken": broken, "invariants": shown}
        print(json.dumps(record, indent=2))
    else:
        _print(findings, f"{folder.path.name}, {state}")
    return 1 if broken else 0


async def _containers(facts: Facts) -> list[Finding]:
    """Nothing where no engine answers: then there are no containers to look for from here."""
    engine = Engine(timeout=10.0)
    try:
        return [await check_containers(facts, engine)]
    except EngineUnavailable:
        return []
    finally:
        engine.close()


def _print(findings: list[Finding], title: str) -> None:
    def say(line: str, **style: Any) -> None:
        console.print(line, soft_wrap=True, markup=False, highlight=False, **style)

    console = Console()
    say(title)
    for finding in findings:
        note = f" ({finding.note})" if finding.note else ""
        mark = "BROKEN" if finding.broken else "ok"
        say(f"{mark:>6}  {finding.name}: {finding.promise}: {finding.checked} checked{note}")
        for line in finding.broken[:_SHOWN]:
            say(f"        {line}", style="red")
        if len(finding.broken) > _SHOWN:
            say(f"        and {len(finding.broken) - _SHOWN} more", style="red")
