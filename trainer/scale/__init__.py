"""A cluster on paper: what a training run of a given size would do, where it would wait, its cost.

`simulate` runs a discrete-event model of the pipeline with a reader's own `ScaleParameters`:
docs/scale.md says what is in it and what is not.
"""

from .duration import Duration
from .parameters import (
    Activity,
    Groups,
    Hosts,
    Learner,
    Orchestrator,
    Prices,
    Sampler,
    ScaleParameters,
    Scoring,
    Workload,
)
from .report import ScaleReport, Waits
from .simulate import simulate
from .sizing import sized

__all__ = [
    "Activity",
    "Duration",
    "Groups",
    "Hosts",
    "Learner",
    "Orchestrator",
    "Prices",
    "Sampler",
    "ScaleParameters",
    "ScaleReport",
    "Scoring",
    "Waits",
    "Workload",
    "simulate",
    "sized",
]
