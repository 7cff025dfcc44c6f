"""What must hold of a run's folder, whatever the run lived through, and a checker that only reads.

    run.sqlite + trajectories/ + checkpoints/ --> facts --> one Finding for each invariant

It is for runs that ended, were killed, or are going on: all rows are read as of one moment. The
checkpoint is the truth of what was learned: with C updates in the newest one, groups committed at a
step below C were trained for good, those at C or later will be trained again by a resume.
"""

from __future__ import annotations

from patchgym.trainer.run_facts import Facts

from .containers import check_containers
from .finding import Finding
from .folder import checkpoints_whole, nothing_partial, steps_follow
from .groups import fresh, none_lost, trained_once
from .rollouts import files_whole, typed

__all__ = ["Finding", "check_containers", "check_facts"]


def check_facts(facts: Facts) -> tuple[Finding, ...]:
    """Every invariant that a folder alone can prove, in the order in which they are promised."""
    return (
        trained_once(facts),
        none_lost(facts),
        files_whole(facts),
        fresh(facts),
        typed(facts),
        steps_follow(facts),
        checkpoints_whole(facts),
        nothing_partial(facts),
    )
