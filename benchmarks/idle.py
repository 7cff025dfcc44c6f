"""Does the account of waits say what was put into them? Injected causes, and the account beside.

    python benchmarks/idle.py [--real]

Three questions, each of the real pipeline in simulated worlds (`trainer/simulation.py`):

known        Every latency is a constant, and one cause is made slow, so that the seconds of each
             step can be counted by hand: for the learner and for the sampler.
sensitivity  Latencies are random, slots and scorers few. A stage's seconds on the way to a batch
             are what the run gets longer by when that stage does, for each part of it. So each
             stage is stretched by 0.1%, and the run's length is compared with the account.
real         With `--real`, the known causes again, on the wall clock, with threads and all. What
             the machine itself needed (recording, bookkeeping) was not put in, and is left out.
             Of the learner alone: rollouts drift apart by some hundredths of a second, so that the
             sampler generates for longer than was counted by hand. About five minutes.

Virtual time is exact (`trainer/virtual_time.py`). The last line has the largest differences, in
shares of wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from patchgym.trainer.config import RunConfig, load_config
from patchgym.trainer.simulation import Latency, SimulatedRun, Straggler, World, simulate
from patchgym.trainer.virtual_time import run_virtually

Seconds = dict[str, float]
Run = Callable[[RunConfig, World], SimulatedRun]

TURNS, SLOW, STRETCH = 4, 4.0, 1e-3
GENERATION, RESET, TOOL, REWARD, UPDATE, PUBLISH = 0.1, 0.05, 0.3, 0.2, 1.0, 0.25
ACTING = RESET + TURNS * (GENERATION + TOOL)
SETTINGS: Mapping[str, str] = {
    "run.steps": "4",
    "group.size": "4",
    "group.per_step": "2",
    "group.max_staleness": "0",
    "rollout.in_flight": "8",
    "rollout.max_turns": str(TURNS),
    "rollout.max_new_tokens": "24",
    "rollout.context_tokens": "256",
    "rollout.seconds": "6000",
    "scoring.workers": "8",
    "learner.row_tokens": "[192]",
}
LEARNER: Mapping[str, float] = {
    "lease wait": RESET,
    "sampling": TURNS * GENERATION,
    "tool act": TURNS * TOOL,
    "scoring": REWARD,
    "training": UPDATE,
    "publishing": PUBLISH,
}
"""Seconds of a step in which all rollouts go side by side."""
SAMPLER: Mapping[str, float] = {
    "lease wait": RESET,
    "generating": TURNS * GENERATION,
    "tool act": TURNS * TOOL,
    "scoring": REWARD,
    "the learner trains": UPDATE,
    "publishing": PUBLISH,
}
OWN = frozenset({"recording", "handing over", "bookkeeping", "opening", "outcome", "scoring wait"})
"""What takes the machine itself: nothing in virtual time; left out by the wall clock."""
LONGER = (TURNS - 1) * GENERATION
"""Seconds for which the sampler generates for a slow rollout alone, after its first turn."""


def const(seconds: float) -> Latency:
    """Always as long."""
    return Latency(spec=f"const:{seconds}")


WORLD = World(
    turns=TURNS,
    generation=const(GENERATION),
    reset=const(RESET),
    step=const(TOOL),
    reward=const(REWARD),
    update=const(UPDATE),
    publish=const(PUBLISH),
    learns=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cause, and what is to come of it."""

    name: str
    world: World
    settings: Mapping[str, str] = field(default_factory=dict)
    learner: Seconds
    """Seconds of each step past the first, by reason."""
    sampler: Seconds


def case(
    name: str,
    world: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    learner: Mapping[str, float] | None = None,
    sampler: Mapping[str, float] | None = None,
) -> Case:
    """A case whose seconds are those of a plain step, and so many more."""
    return Case(
        name=name,
        world=replace(WORLD, **(world or {})),
        settings=settings or {},
        learner=dict(Counter(LEARNER) + Counter(learner or {})),
        sampler=dict(Counter(SAMPLER) + Counter(sampler or {})),
    )


def _slow(**seconds: float) -> dict[str, Any]:
    """One slow rollout in every group."""
    return {"stragglers": 1.0, "straggler": Straggler(**seconds)}


CASES: tuple[Case, ...] = (
    case("nothing is slow"),
    case(
        "slow tests",
        _slow(step=SLOW),
        learner={"tool act": SLOW},
        sampler={"tool act": SLOW - LONGER, "generating": LONGER},
    ),
    case(
        "slow sampler",
        _slow(generation=SLOW),
        learner={"sampling": SLOW},
        sampler={"generating": SLOW},
    ),
    case("slow reward", _slow(reward=SLOW), learner={"scoring": SLOW}, sampler={"scoring": SLOW}),
    case(
        "slow publish",
        {"publish": const(PUBLISH + SLOW)},
        learner={"publishing": SLOW},
        sampler={"publishing": SLOW},
    ),
    case(
        "slow learner",
        {"update": const(UPDATE + SLOW)},
        learner={"training": SLOW},
        sampler={"the learner trains": SLOW},
    ),
    case(
        "few scorers",
        settings={"scoring.workers": "2"},
        learner={"scoring": 3 * REWARD},
        sampler={"scoring": 3 * REWARD},
    ),
    case(
        "few slots",
        settings={"rollout.in_flight": "4"},
        learner={
            "lease wait": RESET,
            "sampling": TURNS * GENERATION,
            "tool act": TURNS * TOOL,
        },
        sampler={
            "lease wait": RESET,
            "generating": TURNS * GENERATION,
            "tool act": TURNS * TOOL,
        },
    ),
    Case(
        name="no sandbox",
        world=replace(WORLD, sandboxes=4),
        learner={**LEARNER, "lease wait": ACTING, "reset": RESET},
        sampler={
            **SAMPLER,
            "generating": 2 * TURNS * GENERATION,
            "tool act": (2 * TURNS - 1) * TOOL,
            "lease wait": TOOL,
            "reset": 2 * RESET,
        },
    ),
    Case(
        name="staleness bound",
        world=replace(WORLD, update=const(UPDATE + 2 * SLOW)),
        settings={"group.max_staleness": "1", "rollout.in_flight": "16", "run.steps": "6"},
        learner={"training": UPDATE + 2 * SLOW, "publishing": PUBLISH},
        sampler={
            "lease wait": RESET,
            "generating": TURNS * GENERATION,
            "tool act": (TURNS - 1) * TOOL,
            "publishing": PUBLISH,
            "the learner trains": UPDATE + 2 * SLOW - ACTING + TOOL,
        },
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true", help="the known causes by the wall clock")
    known = parser.parse_args()
    result: dict[str, object] = {"known_virtual": _worst(virtually)}
    result["sensitivity"] = round(max(_sensitivity(name) for name in RANDOM), 5)
    if known.real:
        result["known_real"] = _worst(really)
    versions = {"patchgym": version("patchgym"), "python": platform.python_version()}
    print("RESULT", json.dumps({**result, "versions": {**versions, "cores": os.cpu_count()}}))


def virtually(config: RunConfig, world: World) -> SimulatedRun:
    """In virtual time."""
    with tempfile.TemporaryDirectory() as folder:
        return run_virtually(simulate, config, world, Path(folder))


def really(config: RunConfig, world: World) -> SimulatedRun:
    """By the wall clock, with threads; updates are counted here too, for theirs are not known."""
    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(simulate, config, world, Path(folder))


def settings(more: Mapping[str, str]) -> RunConfig:
    """A configuration of the simulated runs."""
    return load_config(None, list({**SETTINGS, **more}.items()))


def difference(known: Case, run: Run) -> float:
    """The largest difference of a share, of learner and sampler, between account and cause."""
    steps = run(settings(known.settings), known.world).steps
    # The first steps wait for the first rollouts of all, and the last ones see no new ones.
    later = [step["idle"] for step in (steps[1:] if len(steps) == 4 else steps[2:-2])]
    sides = {"learner": known.learner}
    if run is not really:
        sides["sampler"] = known.sampler
    worst = 0.0
    for side, expected in sides.items():
        seconds = _total(each[side] for each in later)
        own = OWN - set(expected) if run is really else frozenset()
        put_in = {why: part for why, part in seconds.items() if why not in own}
        why, gap = _largest_gap(_shares(put_in), _shares(expected))
        machine = sum(seconds.values()) - sum(put_in.values())
        words = f"({why}; the machine itself {machine:.2f} s)" if own else f"({why})"
        print(f"  {side:8} {known.name:18} {gap:+.4f} {words}", flush=True)
        worst = max(worst, abs(gap))
    return worst


def _largest_gap(found: Seconds, wanted: Seconds) -> tuple[str, float]:
    gaps = {why: found.get(why, 0.0) - wanted.get(why, 0.0) for why in {*found, *wanted}}
    why = max(gaps, key=lambda why: abs(gaps[why]))
    return why, gaps[why]


def _worst(run: Run) -> float:
    print(f"known causes, {run.__name__}: the largest difference of a share")
    return round(max(difference(known, run) for known in CASES), 5)


STAGES: Mapping[str, str] = {
    "generation": "sampling",
    "reset": "lease wait",
    "step": "tool act",
    "reward": "scoring",
    "update": "training",
    "publish": "publishing",
}
"""The world's latencies, and what the account calls them."""
RANDOM: Mapping[str, Mapping[str, str]] = {
    "all side by side": {},
    "few slots": {"rollout.in_flight": "3"},
    "few scorers": {"scoring.workers": "1"},
    "few of both": {"rollout.in_flight": "4", "scoring.workers": "1", "scoring.queue": "1"},
}
RANDOM_WORLD = replace(
    WORLD,
    generation=Latency(spec="uniform:0.05,0.3", seed=4),
    reset=Latency(spec="uniform:0,0.2", seed=2),
    step=Latency(spec="lognormal:0.3,1.0", seed=1),
    reward=Latency(spec="lognormal:0.4,0.5", seed=3),
    update=Latency(spec="uniform:0.5,1.5", seed=5),
)


def sensitivity(
    more: Mapping[str, str], latencies: Sequence[str] = tuple(STAGES), run: Run = virtually
) -> dict[str, tuple[float, float]]:
    """By latency: the share that the account gives it, and the share by which the run gets longer
    for each part that it does."""
    config = settings({**more, "group.per_step": "3"})
    base = run(config, RANDOM_WORLD).steps
    whole = base[-1]["clock_seconds"]
    account = _total(step["idle"]["learner"] for step in base)
    found = {}
    for latency in latencies:
        longer = replace(getattr(RANDOM_WORLD, latency), scale=1 + STRETCH)
        stretched = run(config, replace(RANDOM_WORLD, **{latency: longer})).steps
        gained = (stretched[-1]["clock_seconds"] - whole) / STRETCH
        found[latency] = account.get(STAGES[latency], 0.0) / whole, gained / whole
    return found


def _sensitivity(name: str) -> float:
    print(f"sensitivity, {name}: by the account, and by stretching")
    found = sensitivity(RANDOM[name])
    for latency, (account, truth) in found.items():
        print(f"  {latency:12} {account:8.4f} {truth:8.4f}")
    return max(abs(account - truth) for account, truth in found.values())


def _total(accounts: Any) -> Seconds:
    found: Counter[str] = Counter()
    for each in accounts:
        found.update(each)
    return dict(found)


def _shares(seconds: Mapping[str, float]) -> Seconds:
    whole = sum(seconds.values())
    return {why: part / whole for why, part in seconds.items()}


if __name__ == "__main__":
    main()
