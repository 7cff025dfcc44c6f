"""`patchgym runs`: what was run, how it went, trajectories turn by turn and in other formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from patchgym.trainer.agent_evaluation.folder import is_evaluation, open_evaluation
from patchgym.trainer.heartbeat import state_now
from patchgym.trainer.report import print_summary, summarize, to_json
from patchgym.trainer.run_folder import RunFolder, find_run, list_runs
from patchgym.trainer.sft import is_supervised, read_summary
from patchgym.trainer.supervision import End
from patchgym.trainer.trajectory_store import TrajectoryStore

from .check import add_check, run_check
from .export import add_export, run_export, run_import
from .main import parser
from .profile import add_profile, run_profile
from .rescore import add_rescore, run_rescore
from .serve import add_serve, run_serve
from .watch import add_watch, run_watch
from .why import add_why, run_why


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
    add_rescore(actions)
    add_profile(actions)
    add_check(actions)
    add_serve(actions)
    add_why(actions)
    add_watch(actions)
    known = arguments.parse_args(words)
    console = Console()
    if known.action == "export":
        return run_export(known)
    if known.action == "import":
        return run_import(known)
    if known.action == "rescore":
        return run_rescore(known)
    if known.action == "profile":
        return run_profile(known)
    if known.action == "check":
        return run_check(known)
    if known.action == "serve":
        return run_serve(known)
    if known.action == "why":
        return run_why(known)
    if known.action == "watch":
        return run_watch(known)
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
    if is_supervised(folder):
        return _show_supervised(folder, console, as_json=known.json)
    summary = _summary(folder)
    if known.json:
        print(to_json(summary))
    else:
        print_summary(summary, console)
        if summary["end"] is not None and summary["end"]["how"] != "finished":
            line = f"  end             {End(**summary['end']).line()}"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    return 0


def _summary(folder: RunFolder) -> dict[str, Any]:
    """A training's summary as of now: with why it ended, and whether its owner is alive."""
    summary = summarize(folder)
    return {**summary, "state": state_now(folder, summary["state"])}


def _list(root: Path, console: Console, *, as_json: bool) -> int:
    # An evaluation that was killed before its first rollout has a folder and nothing in it.
    begun = [folder for folder in list_runs(root) if folder.ledger.is_file()]
    summaries = [
        read_summary(folder) if is_supervised(folder) else _summary(folder) for folder in begun
    ]
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
        if summary.get("kind") == "sft":
            console.print(_supervised_line(folder, summary), markup=False, highlight=False)
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


def _show_supervised(folder: RunFolder, console: Console, *, as_json: bool) -> int:
    """The summary of a supervised run."""
    from patchgym.trainer.sft.view import print_summary as print_supervised

    summary = read_summary(folder)
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        print_supervised(summary, console)
    return 0


def _supervised_line(folder: RunFolder, summary: Mapping[str, Any]) -> str:
    heldout = summary["heldout"]
    losses = [heldout[0], heldout[-1]] if len(heldout) > 1 else heldout
    words = " -> ".join(f"{row['loss']:.3f}" for row in losses)
    return (
        f"{folder.path.name}  {summary['state']}  {summary['steps']}/{summary['planned_steps']} "
        f"steps, supervised{f'  loss {words}' if words else ''}"
    )
