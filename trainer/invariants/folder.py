"""Steps, checkpoints, and what must not lie in a folder."""

from __future__ import annotations

import re

from patchgym.trainer.checkpoint_files import damage
from patchgym.trainer.run_facts import Facts, checkpoint_steps

from .finding import Finding
from .groups import committed_rows

_PARTIAL = re.compile(r"\.partial(\.|$)|\.orbax-checkpoint-tmp|^\.(files|value)\.json\.\d+$")


def steps_follow(facts: Facts) -> Finding:
    """Against groups, checkpoints and the plan."""
    steps, committed = set(facts.steps), {row["step"] for row in committed_rows(facts)}
    end = max(steps | committed, default=-1) + 1
    broken = [f"step {step} has no row" for step in sorted(set(range(end)) - steps)]
    broken += [f"step {step} has no group" for step in sorted(steps - committed)]
    if end < facts.checkpoint:
        broken.append(f"the checkpoint is of step {facts.checkpoint}, the ledger ends at {end}")
    if facts.state == "finished" and end != facts.planned:
        broken.append(f"the run is finished with {end} steps of {facts.planned}")
    return Finding(
        name="steps",
        promise="steps follow each other without a gap, each with its groups",
        checked=end,
        broken=tuple(broken),
    )


def checkpoints_whole(facts: Facts) -> Finding:
    """By the sizes that were noted when they were written."""
    found = [facts.folder.checkpoints / str(step) for step in checkpoint_steps(facts.folder)]
    damages = [(path, damage(path)) for path in found]
    return Finding(
        name="checkpoints",
        promise="every checkpoint has all its files, each of its size",
        checked=len(found),
        broken=tuple(f"{path}: {words}" for path, words in damages if words),
    )


def nothing_partial(facts: Facts) -> Finding:
    """What a kill leaves half-written is no fault until somebody went on, or ended in order."""
    left = [path for path in facts.folder.path.rglob("*") if _PARTIAL.search(path.name)]
    ended = facts.in_order()
    return Finding(
        name="nothing partial",
        promise="a run that ended leaves no half-written file",
        checked=sum(path.is_file() for path in facts.folder.path.rglob("*")),
        broken=tuple(f"{path}: left half-written" for path in left) if ended else (),
        note=f"{len(left)} half-written, which a resume takes away" if left and not ended else "",
    )
