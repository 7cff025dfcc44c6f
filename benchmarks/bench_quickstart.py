"""Does it learn? The quickstart under several seeds: pooled held-out pass rates, three curves.

Writes the curves (PNG) and a dated markdown page beside this file, and prints RESULT. Seeds that
are finished already in the runs folder are read, not run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.report import summarize
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.statistics import PassRate, pass_rate

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "examples" / "quickstart.toml"


def finished(folder: RunFolder) -> bool:
    """The run exists and reached its end."""
    return folder.config.is_file() and summarize(folder)["state"] == "finished"


def train(seed: int, runs: Path, extra: list[str]) -> RunFolder:
    """One run of the quickstart, unless it is there already."""
    folder = RunFolder((runs / f"seed{seed}").resolve())
    if finished(folder):
        return folder
    patchgym = str(Path(sys.executable).with_name("patchgym"))
    command = [patchgym, "train"]
    if folder.config.is_file():
        command += ["--resume", str(folder.path)]
    else:
        command += ["--config", str(CONFIG), "--run.folder", str(runs)]
        command += ["--run.name", f"seed{seed}", "--run.seed", str(seed), *extra]
    subprocess.run(command, check=True)
    return folder


def pooled(folders: list[RunFolder], name: str) -> PassRate:
    """Held-out outcomes of all runs, clustered by task.

    Before training all runs have the same weights, and evaluations the same random streams: those
    are the same samples, so they count once.
    """
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for folder in folders[:1] if name == "before" else folders:
        with LedgerReader(folder.ledger) as reader:
            sql = "SELECT task_id, resolved FROM evaluations WHERE name = ? AND resolved NOTNULL"
            for row in reader.rows(sql, (name,)):
                outcomes[row["task_id"]].append(bool(row["resolved"]))
    return pass_rate(outcomes)


def draw(summaries: list[dict[str, Any]], path: Path) -> None:
    """The training curves of all seeds in one picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for summary in summaries:
        known = [row for row in summary["history"] if row["pass_rate"] is not None]
        steps = [row["step"] + 1 for row in known]
        rates = [row["pass_rate"] for row in known]
        axes.plot(steps, rates, "o-", label=f"seed {summary['seed']}, training rollouts")
        held = summary["heldout"]
        ends = [0, summary["steps"] + 1]
        axes.plot(ends, [held[n]["pass_rate"] for n in ("before", "after")], "k:", lw=1)
        axes.plot(ends, [held[n]["pass_rate"] for n in ("before", "after")], "kD", ms=4)
    axes.set(xlabel="step", ylabel="pass rate", ylim=(0, 1))
    axes.set_title("quickstart: three seeds (diamonds: held-out tasks before and after)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path)


def describe(rate: PassRate) -> str:
    """A pass rate in words."""
    low, high = rate.interval
    return f"{rate.pass_rate:.1%} [{low:.1%}, {high:.1%}]"


def page(summaries: list[dict[str, Any]], before: PassRate, after: PassRate) -> str:
    """The results as markdown."""
    rows = [
        f"| {s['seed']} | {s['heldout']['before']['pass_rate']:.1%} | "
        f"{s['heldout']['after']['pass_rate']:.1%} | {s['steps']} | {s['seconds'] / 60:.1f} | "
        f"{s['learner']['idle_share']:.0%} |"
        for s in summaries
    ]
    return "\n".join(
        [
            f"# Quickstart, {len(summaries)} seeds, {datetime.date.today()}",
            "",
            f"Command: `make bench-quickstart` ({os.cpu_count()} CPU cores).",
            "",
            "| seed | held out before | after | steps | minutes | learner idle |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"{describe(before)} before ({before.samples} samples, the same for every seed), "
            f"{describe(after)} after, pooled ({after.samples} samples). 95% intervals at the "
            "effective sample size, which counts several samples of one task as less than "
            "independent.",
            "",
            "![curves](quickstart-curves.png)",
            "",
        ]
    )


def main() -> int:
    """Run what is missing, then report; exit code 1 when the bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "bench-quickstart")
    known, extra = arguments.parse_known_args()
    folders = [train(seed, known.runs, extra) for seed in known.seeds]
    summaries = [summarize(folder) for folder in folders]
    before, after = pooled(folders, "before"), pooled(folders, "after")
    draw(summaries, HERE / "quickstart-curves.png")
    (HERE / "quickstart.md").write_text(page(summaries, before, after))
    apart = after.interval[0] > before.interval[1]
    doubled = after.pass_rate >= 2 * before.pass_rate
    print(f"held out before {describe(before)}, after {describe(after)}")
    result = {
        "after_vs_before": round(after.pass_rate / before.pass_rate, 2)
        if before.pass_rate
        else None,
        "before": before.pass_rate,
        "after": after.pass_rate,
        "intervals_apart": apart,
        "minutes": [round(s["seconds"] / 60, 1) for s in summaries],
        "spread": {"after": [s["heldout"]["after"]["pass_rate"] for s in summaries]},
        "versions": {"python": sys.version.split()[0]},
    }
    print("RESULT " + json.dumps(result))
    return 0 if doubled and apart else 1


if __name__ == "__main__":
    sys.exit(main())
