"""The report of a policy's evaluation: SWE-bench's keys by the first sample, and beside them
pass@k, how rollouts ended, and what they cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from patchgym.rewards import Verdict
from patchgym.rewards.evaluation import Evaluation, Judged, document
from patchgym.rewards.evaluation.report import percentile
from patchgym.trainer.trajectory_store import TrajectoryStore

from .estimates import estimate, ladder
from .folder import EvaluationFolder
from .samples import Sample, read_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens; None is not known."""

    prompt: float | None = None
    sampled: float | None = None


def report_of(
    folder: EvaluationFolder,
    *,
    prices: Prices | None = None,
    seconds: float = 0.0,
    taken_over: int = 0,
) -> dict[str, Any]:
    """The report as one JSON document, of whatever is there so far. Blocking."""
    found = list(read_samples(folder.run, folder.task_ids, folder.samples))
    record = document(_evaluation(folder, found, seconds, taken_over))
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for each in found:
        if each.known:
            outcomes[each.task_id].append(each.resolved)
    estimates = [estimate(outcomes, k) for k in ladder(folder.samples)]
    known = sum(each.known for each in found)
    return {
        **record,
        "run": str(folder.run.path),
        "tasks": folder.record["tasks"],
        "policy": dict(folder.policy),
        "samples": folder.samples,
        "pass_at": {str(each.k): _plain(asdict(each)) for each in estimates if each is not None},
        "rollouts": {
            "planned": len(folder.task_ids) * folder.samples,
            "kept": len(found),
            "known": known,
            "unknown": len(found) - known,
            "outcomes": dict(Counter(each.stop_reason for each in found)),
            "unknown_reasons": _reasons(found),
        },
        "tokens": _tokens(found),
        "rollout_seconds": _spread([each.seconds for each in found]),
        "turns": _spread([float(each.turns) for each in found]),
        "cost": _cost(found, prices or Prices()),
    }


def _evaluation(
    folder: EvaluationFolder, found: Sequence[Sample], seconds: float, taken_over: int
) -> Evaluation:
    """Samples as the repeats of an evaluation of patches."""
    by_task: dict[str, dict[int, Sample]] = defaultdict(dict)
    for each in found:
        by_task[each.task_id][each.number] = each
    missing = Verdict(status="unknown", evidence="infra", detail="not rolled out yet")
    store = TrajectoryStore(folder.run.trajectories)
    judged = {
        task_id: Judged(
            verdicts=tuple(
                samples[number].verdict if number in samples else missing
                for number in range(folder.samples)
            ),
            logs=tuple(
                str(store.path(samples[number].rollout_id).relative_to(folder.run.path))
                if number in samples
                else ""
                for number in range(folder.samples)
            ),
            model=str(folder.policy.get("model", "")),
        )
        for task_id, samples in by_task.items()
    }
    broken = folder.record["broken"]
    return Evaluation(
        task_ids=tuple(dict.fromkeys((*folder.task_ids, *broken))),
        submitted_ids=tuple(by_task),
        judged=judged,
        broken=broken,
        settings=folder.record["settings"],
        repeats=folder.samples,
        taken_over=taken_over,
        seconds=seconds,
    )


def _reasons(found: Sequence[Sample]) -> dict[str, int]:
    """Why outcomes are unknown: the stop reason, and the first words of what was said."""
    words = (
        f"{each.stop_reason}: {each.error or each.verdict.detail or each.verdict.evidence}"[:200]
        for each in found
        if not each.known
    )
    return dict(Counter(words))


def _tokens(found: Sequence[Sample]) -> dict[str, Any]:
    tasks = len({each.task_id for each in found})
    prompt = sum(each.use.prompt for each in found)
    sampled = sum(each.use.sampled for each in found)
    return {
        "prompt": prompt,
        "sampled": sampled,
        "prompt_per_task": prompt / tasks if tasks else None,
        "sampled_per_task": sampled / tasks if tasks else None,
        "prompt_per_rollout": prompt / len(found) if found else None,
        "sampled_per_rollout": sampled / len(found) if found else None,
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    mean = {"mean": sum(values) / len(values) if values else None}
    return {**mean, **{name: percentile(values, share) for name, share in shares.items()}}


def _cost(found: Sequence[Sample], prices: Prices) -> dict[str, float] | None:
    """Dollars; every prompt token at its full price, a cached one too."""
    if prices.prompt is None and prices.sampled is None:
        return None
    total = (
        sum(
            each.use.prompt * (prices.prompt or 0.0) + each.use.sampled * (prices.sampled or 0.0)
            for each in found
        )
        / 1e6
    )
    tasks = len({each.task_id for each in found})
    resolved = sum(each.resolved for each in found)
    shares = {"per_task": tasks, "per_rollout": len(found), "per_resolved": resolved}
    return {
        "total": total,
        **{name: total / count for name, count in shares.items() if count},
        "price_in": prices.prompt or 0.0,
        "price_out": prices.sampled or 0.0,
    }


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "interval": list(record["interval"])}
