"""`patchgym runs`: what was run, how it went, and single trajectories turn by turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from patchgym.trainer.report import print_summary, summarize, to_json
from patchgym.trainer.run_folder import find_run, list_runs
from patchgym.trainer.trajectory_store import TrajectoryStore

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
    known = arguments.parse_args(words)
    console = Console()
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
    summary = summarize(folder)
    if known.json:
        print(to_json(summary))
    else:
        print_summary(summary, console)
    return 0


def _list(root: Path, console: Console, *, as_json: bool) -> int:
    summaries = [summarize(folder) for folder in list_runs(root)]
    if as_json:
        print(json.dumps(summaries, indent=2))
        return 0
    if not summaries:
        console.print(f"no runs in {root.resolve()}", soft_wrap=True)
    for summary in summaries:
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
