"""The report of an evaluation: SWE-bench's keys, and beside them what each verdict rests on.

Every task of the file is in exactly one of five lists, by its first repeat: resolved, unresolved,
empty patch, incomplete (no prediction) and error (no verdict: the task, the prediction or the
machine was at fault). Where the task or the machine was, nothing is known, and the rate leaves it
out; whatever else is not resolved counts as such, a prediction that can't be read included.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import patchgym
from patchgym.datasets.journal import write_whole
from patchgym.rewards.base import Verdict
from patchgym.rewards.plain import plain
from patchgym.sandbox.testing.report import Flake, wilson

from .errors import EvaluationError

Standing = Literal["resolved", "unresolved", "empty_patch", "incomplete", "error"]
STANDINGS: tuple[Standing, ...] = ("resolved", "unresolved", "empty_patch", "incomplete", "error")
SCHEMA = 2  # of SWE-bench's reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one task's prediction."""

    verdicts: tuple[Verdict, ...]
    """One for each repeat, in order; at least one."""
    logs: tuple[str, ...]
    """The log of each, as a path relative to the report's folder."""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of resolved tasks."""

    resolved: int
    judged: int
    """Tasks that count: all but those of which nothing is known."""

    @property
    def rate(self) -> float:
        """resolved / judged; 0 when nothing counts."""
        return self.resolved / self.judged if self.judged else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95%."""
        return wilson(self.rate, self.judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that an evaluation found."""

    task_ids: tuple[str, ...]
    """Every task of the file, usable or not."""
    submitted_ids: tuple[str, ...]
    """Every id that was predicted."""
    judged: Mapping[str, Judged]
    """By task id."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Tasks whose row can't be used, and why."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Tasks whose prediction can't be read, and why."""
    notes: tuple[str, ...] = ()
    """What was odd in the input, one line each."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What the verdicts depend on beside task and patch; JSON types only."""
    repeats: int = 1
    taken_over: int = 0
    """Verdicts that an earlier, stopped evaluation had left."""
    seconds: float = 0.0
    """Wall-clock seconds of this evaluation."""

    def standing(self, task_id: str, repeat: int = 0) -> Standing:
        """Which of the five lists the task is in, by one of its repeats (from 0)."""
        if task_id in self.broken or task_id in self.unusable:
            return "error"
        if task_id not in self.judged:
            return "incomplete"
        verdict = self.judged[task_id].verdicts[repeat]
        if verdict.evidence == "empty_patch":
            return "empty_patch"
        return "error" if verdict.status == "unknown" else verdict.status

    def ids(self, *standings: Standing, repeat: int = 0) -> list[str]:
        """The tasks of these lists, sorted."""
        return sorted(each for each in self.task_ids if self.standing(each, repeat) in standings)

    def rate(self, repeat: int = 0) -> Rate:
        """The resolved rate of one repeat (from 0)."""
        unknown = set(self.ids("error", repeat=repeat)) - set(self.unusable_ids)
        resolved = len(self.ids("resolved", repeat=repeat))
        return Rate(resolved=resolved, judged=len(self.task_ids) - len(unknown))

    @property
    def mean_rate(self) -> float:
        """Over all repeats."""
        return statistics.fmean(self.rate(repeat).rate for repeat in range(self.repeats))

    @property
    def errors(self) -> dict[str, str]:
        """Why each task of the error list has no verdict, sorted by id."""
        return {
            each: self.broken.get(each)
            or self.unusable.get(each)
            or _reason(self.judged[each].verdicts[0])
            for each in self.ids("error")
        }

    @property
    def unusable_ids(self) -> list[str]:
        """Errors that lie in the prediction alone, sorted; they count as not resolved."""
        return sorted(self.unusable.keys() - self.broken.keys())

    @property
    def changed(self) -> dict[str, list[str]]:
        """Tasks whose repeats did not agree: each one's status. Failures of the machine are no
        disagreement."""
        found: dict[str, list[str]] = {}
        for task_id, judged in sorted(self.judged.items()):
            known = [each.status for each in judged.verdicts if each.evidence != "infra"]
            if len(set(known)) > 1:
                found[task_id] = [each.status for each in judged.verdicts]
        return found

    @property
    def unknown_ids(self) -> list[str]:
        """Predicted ids that are in no task, sorted."""
        return sorted(set(self.submitted_ids) - set(self.task_ids))

    @property
    def flaky_ids(self) -> list[str]:
        """Tasks in which a test was set aside as flaky, in any repeat, sorted."""
        return self._any(lambda verdict: bool(verdict.flaky))

    @property
    def tampered_ids(self) -> list[str]:
        """Tasks whose patch was disqualified for tampering, sorted."""
        return self._any(lambda verdict: any(each.disqualifies for each in verdict.tampering))

    def _any(self, holds: Callable[[Verdict], bool]) -> list[str]:
        return sorted(
            each for each, judged in self.judged.items() if any(map(holds, judged.verdicts))
        )

    @property
    def run_seconds(self) -> dict[str, float]:
        """Seconds of the first verdict of every task whose tests ran."""
        firsts = {each: judged.verdicts[0] for each, judged in self.judged.items()}
        return {
            each: verdict.seconds for each, verdict in firsts.items()
            if verdict.evidence not in ("empty_patch", "patch_refused", "infra")
        }  # fmt: skip


def document(evaluation: Evaluation) -> dict[str, Any]:
    """The report as one JSON document."""
    rate = evaluation.rate()
    return {
        **_swebench(evaluation),
        "unusable_ids": evaluation.unusable_ids,
        "unknown_ids": evaluation.unknown_ids,
        "flaky_ids": evaluation.flaky_ids,
        "tampered_ids": evaluation.tampered_ids,
        "errors": evaluation.errors,
        "notes": list(evaluation.notes),
        "resolved_rate": rate.rate,
        "resolved_interval": list(rate.interval),
        "judged_instances": rate.judged,
        "models": sorted({judged.model for judged in evaluation.judged.values() if judged.model}),
        "settings": plain(evaluation.settings),
        "patchgym_version": patchgym.__version__,
        "seconds": _seconds(evaluation),
        "taken_over": evaluation.taken_over,
        "repeats": _repeats(evaluation),
        "verdicts": {
            each: _task_record(judged, evaluation.standing(each))
            for each, judged in sorted(evaluation.judged.items())
        },
    }


def write_report(record: Mapping[str, Any], path: Path) -> None:
    """Write a report's document, the whole file or nothing. Blocking. Raises EvaluationError."""
    text = json.dumps(record, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise EvaluationError(f"{path}: the report can't be written: {error.strerror}") from error


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON, without what it printed: that is in its log."""
    record: dict[str, Any] = plain(verdict)
    record.pop("log")
    record["flaky"] = {test: _flake(flake) for test, flake in sorted(verdict.flaky.items())}
    return record


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def _swebench(evaluation: Evaluation) -> dict[str, Any]:
    """The keys that SWE-bench's own report has."""
    lists: dict[str, list[str]] = {each: evaluation.ids(each) for each in STANDINGS}
    lists["completed"] = evaluation.ids("resolved", "unresolved")
    counted = ("completed", "resolved", "unresolved", "empty_patch", "error")
    return {
        "total_instances": len(evaluation.task_ids),
        "submitted_instances": len(evaluation.submitted_ids),
        **{f"{name}_instances": len(lists[name]) for name in counted},
        "submitted_ids": sorted(evaluation.submitted_ids),
        **{f"{name}_ids": ids for name, ids in lists.items()},
        "schema_version": SCHEMA,
    }


def _repeats(evaluation: Evaluation) -> dict[str, Any]:
    rates = [evaluation.rate(repeat) for repeat in range(evaluation.repeats)]
    shares = [each.rate for each in rates]
    return {
        "count": evaluation.repeats,
        "rates": [
            {
                "resolved": each.resolved,
                "judged": each.judged,
                "rate": each.rate,
                "interval": list(each.interval),
            }
            for each in rates
        ],
        "mean": evaluation.mean_rate,
        "minimum": min(shares),
        "maximum": max(shares),
        "standard_deviation": statistics.stdev(shares) if len(shares) > 1 else 0.0,
        "changed": evaluation.changed,
    }


def _seconds(evaluation: Evaluation) -> dict[str, Any]:
    found = evaluation.run_seconds
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    slowest = sorted(found, key=lambda each: -found[each])[:5]
    return {
        "total": evaluation.seconds,
        **{name: percentile(list(found.values()), share) for name, share in shares.items()},
        "slowest": {each: found[each] for each in slowest},
    }


def _task_record(judged: Judged, standing: Standing) -> dict[str, Any]:
    records = [
        {**verdict_record(verdict), "log": log}
        for verdict, log in zip(judged.verdicts, judged.logs, strict=True)
    ]
    return {
        "resolved": standing == "resolved",
        **records[0],
        "model": judged.model,
        "repeats": records,
    }


def _flake(flake: Flake) -> dict[str, Any]:
    return {**plain(flake), "rate": flake.rate, "interval": list(flake.interval)}


def _reason(verdict: Verdict) -> str:
    if verdict.evidence == "flaky":
        return f"only flaky tests stand in the way: {', '.join(sorted(verdict.flaky))}"
    return verdict.detail or f"no verdict ({verdict.evidence})"
