"""A whole cluster, simulated event by event.

Needs `simpy` (`pip install 'patchgym[scale]'`). Processor time goes with the number of turns,
hardly with the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from patchgym.trainer.errors import UserError

from .flow import Flow
from .machines import Machines
from .meters import Meters
from .parameters import ScaleParameters, Scoring
from .report import ScaleReport, Waits, bottleneck
from .rollouts import Rollouts

if TYPE_CHECKING:
    from simpy import Environment

WARMUP, MEASURED = 1.5, 1.5
"""Rollouts of each slot before and in the window that is reported."""
STEPS, LEAST = 2, 1000
"""Updates, and rollouts, that the window has at least."""
ENOUGH = 6
"""Updates from which on their own times say how much is trained on; else groups that are kept."""


def simulate(parameters: ScaleParameters, *, rollouts: int = 0) -> ScaleReport:
    """Run the model: a warm-up, then a window of `rollouts` rollouts (0: as many as settle
    the rates). The same parameters give the same report. UserError without simpy."""
    env = _environment()
    meters = Meters(env)
    flow = Flow(env, parameters, meters)
    machines = Machines(env, parameters)
    work = Rollouts(env, parameters, machines, flow, meters)
    _watch(parameters, meters, machines, flow, work)
    for _ in range(parameters.scoring.workers):
        env.process(work.worker())
    for _ in range(parameters.slots):
        env.process(work.slot())
    env.process(flow.learn())
    step = parameters.groups.per_step * parameters.groups.size
    warmup = int(WARMUP * max(parameters.slots, 2 * step))
    window = rollouts or int(max(MEASURED * parameters.slots, STEPS * step, LEAST))
    _run(env, meters, work, warmup, warmup + window)
    return _report(parameters, meters, flow)


def _environment() -> Environment:
    try:
        from simpy import Environment
    except ModuleNotFoundError:
        raise UserError("the scale model needs simpy: run pip install 'patchgym[scale]'") from None
    return Environment()


def _run(env: Environment, meters: Meters, work: Rollouts, warmup: int, last: int) -> None:
    """Until `last` rollouts are scored or given up; the window begins after `warmup` of them."""
    over = env.event()
    count = 0

    def finished() -> None:
        nonlocal count
        count += 1
        if count == warmup:
            meters.begin()
        if count == last:
            over.succeed()

    work.finished = finished
    env.run(until=over)


def _watch(
    parameters: ScaleParameters, meters: Meters, machines: Machines, flow: Flow, work: Rollouts
) -> None:
    """Name what is integrated over time."""
    meters.watch("flying", work.flying.area)
    meters.watch("scoring", work.scoring.area)
    meters.watch("sandboxes", work.sandboxes.busy.area)
    meters.watch("verdict sandboxes", work.verdicts.busy.area)
    meters.watch("learning", flow.learning.area)
    meters.watch("queue", flow.waiting.area)
    meters.watch("hosts", lambda: sum(host.used() for host in machines.hosts))
    meters.watch("samplers", lambda: sum(each.used() for each in machines.samplers))
    meters.watch("driver", machines.driver.used)


def _report(parameters: ScaleParameters, meters: Meters, flow: Flow) -> ScaleReport:
    scoring, groups = parameters.scoring, parameters.groups
    sandboxes = parameters.hosts.sandboxes or parameters.slots
    means = {name: meters.mean(name) for name in NAMES}
    use = {
        "sampler": means["samplers"] / max(parameters.sampler.accelerators, 1),
        "host cores": means["hosts"] / parameters.hosts.count,
        "orchestrator": 0.0 if parameters.orchestrator.on_host else means["driver"],
        "learner": means["learning"],
        "sandboxes": means["sandboxes"] / sandboxes,
        **_scoring_use(scoring, means),
        "slots": means["flying"] / parameters.slots,
    }
    trained = _trained(meters, flow)
    accelerators = parameters.sampler.accelerators + parameters.learner.accelerators
    prices = parameters.prices
    hour = accelerators * prices.accelerator_hour + parameters.hosts.count * prices.host_hour
    return ScaleReport(
        seconds=meters.seconds,
        rollouts_per_second=meters.counts["rollouts"] / meters.seconds,
        trained_per_second=trained,
        tokens_per_second=meters.counts["tokens"] / meters.seconds,
        steps_per_hour=3600 * trained / (groups.size * groups.per_step),
        use=use,
        waits={name: Waits.of(seconds) for name, seconds in sorted(meters.waits.items())},
        bottleneck=bottleneck(_limits(parameters, use)),
        hosts_per_accelerator=parameters.hosts.count / accelerators if accelerators else 0.0,
        cost_per_thousand=hour / 3.6 / trained if trained else 0.0,
        counts={**{name: flow.total[name] for name in COUNTED}, "held": flow.held()},
        means={
            "flying": means["flying"],
            "scoring": means["scoring"],
            "sandboxes": means["sandboxes"],
            "queue": means["queue"],
        },
    )


def _trained(meters: Meters, flow: Flow) -> float:
    """Rollouts a second that are trained on."""
    steps = [(when, count) for when, count in flow.steps if when >= meters.since]
    if len(steps) < ENOUGH:
        return max(meters.counts["kept"], 0) / meters.seconds
    return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])


def _limits(parameters: ScaleParameters, use: Mapping[str, float]) -> dict[str, float]:
    """Sandboxes that are as many as slots come with more slots, and limit nothing by themselves."""
    own = parameters.hosts.sandboxes
    return {name: share for name, share in use.items() if own or name != "sandboxes"}


def _scoring_use(scoring: Scoring, means: Mapping[str, float]) -> dict[str, float]:
    """A worker whose only sandbox is being recycled has as little to do as one that works."""
    if not scoring.sandboxes:
        return {"reward workers": means["verdict sandboxes"] / scoring.workers}
    return {
        "reward workers": means["scoring"] / scoring.workers,
        "verdict sandboxes": means["verdict sandboxes"] / scoring.sandboxes,
    }


COUNTED = ("handed out", "delivered", "trained", "dropped")
NAMES = (
    "flying",
    "scoring",
    "sandboxes",
    "verdict sandboxes",
    "learning",
    "queue",
    "hosts",
    "samplers",
    "driver",
)
