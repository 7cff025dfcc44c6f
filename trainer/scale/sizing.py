"""How many hosts, workers and accelerators a number of rollouts in flight asks for.

A run in which none of them is ever short says what the rollouts would get done, and what of each
resource that takes; so many are needed that each is used to a given share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .parameters import ScaleParameters
from .report import ScaleReport
from .simulate import simulate

AT_MOST = 1024
"""Rollouts in flight of the run that is looked at: past it everything grows in proportion."""
PLENTY = 1e9


def sized(parameters: ScaleParameters, *, use: float = 0.75) -> ScaleParameters:
    """The same with as many hosts, reward workers and learner's accelerators as are used to `use`
    (0 to 1) when they are not what is waited for. Samplers, slots and processes stay as given."""
    report, free = _unhindered(parameters)
    factor = parameters.slots / free.slots / use
    work = parameters.workload
    busy = report.rollouts_per_second * factor
    scoring = work.score.seconds.mean + parameters.hosts.recycle.seconds.mean
    learning = _learning(parameters, report, use)
    cores = report.use["host cores"] * free.hosts.count * free.hosts.cores * factor
    return replace(
        parameters,
        hosts=replace(parameters.hosts, count=max(math.ceil(cores / parameters.hosts.cores), 1)),
        scoring=replace(parameters.scoring, workers=max(math.ceil(busy * scoring), 1)),
        learner=replace(parameters.learner, accelerators=max(math.ceil(learning), 1)),
    )


def _learning(parameters: ScaleParameters, report: ScaleReport, use: float) -> float:
    """Accelerators with which an update, its publication included, takes `use` of the time in which
    its trajectories come in; what does not get shorter with their number is left out past 90%."""
    learner, groups = parameters.learner, parameters.groups
    if not report.steps_per_hour:
        return 1.0
    every = 3600 / report.steps_per_hour  # the same step, of a part of the cluster, at that rate
    tokens = groups.size * groups.per_step * tokens_of(parameters, report)
    fixed = learner.seconds / learner.speed + learner.publish_seconds
    left = max(use * every - fixed, 0.1 * every)
    return tokens * learner.token_seconds / learner.speed / left


def tokens_of(parameters: ScaleParameters, report: ScaleReport) -> float:
    """Mean tokens of a trajectory, context included."""
    work = parameters.workload
    rollouts = report.rollouts_per_second
    turns = report.tokens_per_second / work.turn_tokens.mean / rollouts if rollouts else 0.0
    return work.opening_tokens + turns * (work.turn_tokens.mean + work.observation_tokens)


def _unhindered(parameters: ScaleParameters) -> tuple[ScaleReport, ScaleParameters]:
    """A run of the same rollouts, on machines that are never short; not more than `AT_MOST`."""
    slots = min(parameters.slots, AT_MOST)
    share = slots / parameters.slots
    samplers = parameters.sampler.accelerators
    free = replace(
        parameters,
        slots=slots,
        hosts=replace(parameters.hosts, count=1, cores=PLENTY, sandboxes=2 * slots),
        sampler=replace(
            parameters.sampler, accelerators=max(round(samplers * share), 1) if samplers else 0
        ),
        scoring=replace(parameters.scoring, workers=slots, sandboxes=2 * slots),
        groups=replace(
            parameters.groups, per_step=max(round(parameters.groups.per_step * share), 1)
        ),
        learner=replace(parameters.learner, accelerators=1, seconds=0.0, token_seconds=0.0),
        orchestrator=replace(parameters.orchestrator, processes=slots, on_host=False),
    )
    return simulate(free), free
