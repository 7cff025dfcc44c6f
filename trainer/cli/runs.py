"""`patchgym runs`: what was run, how it went, trajectories turn by turn and in other formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from patchgym.trainer.agent_evaluation.folder import is_evaluation, open_evaluation
from patchgym.trainer.report import print_summary, summarize, to_json
from patchgym.trainer.run_folder import RunFolder, find_run, list_runs
from patchgym.trainer.trajectory_store import TrajectoryStore

from .export import add_export, run_export, run_import
from .main import parser


def run(words: Sequence[str]) -> int:
    """Entry point."""
    arguments = parser("runs")
    arguments.add_argument("--folder", type=Path, default=Path("runs"), help="where runs are kept")
    actions = arguments.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("ls", help="list runs")
    listing.add_argument("--json", action="store_true")
    show = actions.add_parser("show", help="a run's summary, or one of its trajectories")
    show.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    show.add_argument("--trajectory", metavar="ID", help="one rollout, turn by turn")
    show.add_argument("--json", action="store_true")
    add_export(actions)
    known = arguments.parse_args(words)
    console = Console()
    if known.action == "export":
        return run_export(known)
    if known.action == "import":
        return run_import(known)
    if known.action == "ls":
        return _list(known.folder, console, as_json=known.json)
    folder = find_run(known.run, known.folder)
    if known.trajectory:
        from patchgym.trainer.trajectory_view import print_rollout, rollout_record

        stored = TrajectoryStore(folder.trajectories).read(known.trajectory)
        if known.json:
            print(json.dumps(rollout_record(stored), indent=2))
        else:
            print_rollout(stored, console)
        return 0
    if is_evaluation(folder):
        return _show_evaluation(folder, console, as_json=known.json)
    summary = summarize(folder)
    if known.json:
        print(to_json(summary))
    else:
        print_summary(summary, console)
    return 0


def _list(root: Path, console: Console, *, as_json: bool) -> int:
    # An evaluation that was killed before its first rollout has a folder and nothing in it.
    begun = [folder for folder in list_runs(root) if folder.ledger.is_file()]
    summaries = [summarize(folder) for folder in begun]
    if as_json:
        print(json.dumps(summaries, indent=2))
        return 0
    if not summaries:
        console.print(f"no runs in {root.resolve()}", soft_wrap=True)
    for summary in summaries:
        folder = RunFolder(Path(summary["run"]))
        if is_evaluation(folder):
            console.print(_evaluation_line(folder, summary), markup=False, highlight=False)
            continue
        heldout = summary["heldout"]
        rates = " -> ".join(
            f"{heldout[n]['pass_rate']:.1%}" for n in ("before", "after") if n in heldout
        )
        console.print(
            f"{Path(summary['run']).name}  {summary['state']}  "
            f"{summary['steps']}/{summary['planned_steps']} steps  {rates}",
            markup=False,
            highlight=False,
        )
    return 0


def _show_evaluation(folder: RunFolder, console: Console, *, as_json: bool) -> int:
    """The report of a policy's evaluation, of whatever is there so far."""
    from patchgym.trainer.agent_evaluation.report import report_of

    from .evaluate_policy_table import print_policy_report

    record = report_of(open_evaluation(folder))
    if as_json:
        print(json.dumps(record, indent=2))
    else:
        print_policy_report(record, console)
    return 0


def _evaluation_line(folder: RunFolder, summary: Mapping[str, Any]) -> str:
    evaluation = open_evaluation(folder)
    planned = len(evaluation.task_ids) * evaluation.samples
    kept = sum(summary["outcomes"].values())
    spec = evaluation.policy.get("spec", evaluation.record["settings"]["policy"])
    return f"{folder.path.name}  {summary['state']}  {kept}/{planned} rollouts of {spec}"
