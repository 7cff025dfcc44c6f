"""Which component fires on which patch: seeded flaws, clean patches, gold, empty, injected bugs.

The patches are made of the bundled tasks' own solutions (`tests/support/flawed_patches.py`), scored
by a real scorer: verdicts and linters in sandboxes. No component is gated here, so that each is
measured on every patch; a component fires where its value is above `FIRES`.
"""

from __future__ import annotations

import difflib
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.injection.mutations import places
from patchgym.datasets.injection.source import Source, apply
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import Conduct, Reward, RewardConfig, Scorer, read_change
from patchgym.rewards.registry import BUILT_IN
from patchgym.trainer.config import SandboxSection, ScoringSection
from patchgym.trainer.scoring import open_scorer
from patchgym.trainer.statistics import percentile
from patchgym.trainer.task_pool import open_task_pool

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from flawed_patches import KINDS, VARIANTS, clean, flawed

FIRES = 0.05
WORKERS = 2
GOLD = 40
"""Tasks whose gold and empty patches are measured."""
SHARES = (0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One patch to score."""

    set: str
    """What it is one of: a flaw's kind, `clean`, `gold`, `empty`, `injected`."""
    task: Task
    diff: bytes


def every_component() -> RewardConfig:
    """All components, none gated; tests alone count."""
    ungated = {name: {"weight": 0.0, "gate": ""} for name in BUILT_IN}
    return RewardConfig.of({**ungated, "tests": 1.0})


def detection_cases(count: int) -> Iterator[Case]:
    """`count` of each flaw, and as many clean ones as flawed."""
    tasks = _shuffled()
    for kind in KINDS:
        fit = [task for task in tasks if task.pass_to_pass] if kind == "regression" else tasks
        for number in range(count):
            task = fit[number % len(fit)]
            yield Case(set=kind, task=task, diff=flawed(task, kind, number))
    for number in range(count * len(KINDS)):
        task = tasks[number % len(tasks)]
        variant = VARIANTS[number % len(VARIANTS)]
        yield Case(set="clean", task=task, diff=clean(task, variant, number))


def distribution_cases(count: int) -> Iterator[Case]:
    """Gold and empty of some tasks, and `count` solutions with a bug put in."""
    tasks = _shuffled()
    for task in tasks[:GOLD]:
        yield Case(set="gold", task=task, diff=task.gold_patch.encode())
        yield Case(set="empty", task=task, diff=b"")
    number = 0
    for seed in range(2 * count):
        task = tasks[seed % len(tasks)]
        diff = injected(task, seed)
        if diff and number < count:
            number += 1
            yield Case(set="injected", task=task, diff=diff)


def injected(task: Task, seed: int) -> bytes:
    """The task's solution with one bug of our injection in it, as a diff; empty where none fits."""
    assert task.focus is not None and task.files is not None
    path = task.focus.path
    source = Source(path, _fixed(task, path))
    found = list(places(source))
    if not found:
        return b""
    place = random.Random(f"{task.id} {seed}").choice(found)
    mutated = apply(source.data, place.edits)
    assert mutated is not None
    lines = difflib.unified_diff(
        task.files[path].splitlines(keepends=True),
        mutated.decode().splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
    )
    return "".join(lines).encode()


def _fixed(task: Task, path: str) -> bytes:
    """A file of the task with its own solution applied."""
    diff = task.gold_patch.encode()
    change = read_change(task, diff, materialize(task, repositories_dir()))
    return next(file.after for file in change.files if file.path == path and file.after)


def _shuffled() -> list[Task]:
    tasks = [*bundled_tasks("train"), *bundled_tasks("heldout")]
    random.Random(0).shuffle(tasks)
    return tasks


async def score_all(
    cases: Sequence[Case], on_scored: Callable[[int], None] = lambda number: None
) -> list[Reward]:
    """Each case's reward, nothing kept from earlier runs."""
    rewards: dict[int, Reward] = {}
    waiting = iter(enumerate(cases))

    async def work(scorer: Scorer) -> None:
        for number, case in waiting:
            rewards[number] = await scorer.score(case.task, case.diff, Conduct(turns=1))
            on_scored(len(rewards))

    async with AsyncExitStack() as stack:
        scorer = await _open(stack, [case.task for case in cases])
        async with anyio.create_task_group() as group:
            for _ in range(WORKERS):
                group.start_soon(work, scorer)
    return [rewards[number] for number in range(len(cases))]


async def _open(stack: AsyncExitStack, tasks: Sequence[Task]) -> Scorer:
    sandbox = SandboxSection(slots=1)
    opened = await stack.enter_async_context(
        open_task_pool(tasks, image=sandbox.image, size=1, memory_mib=sandbox.memory_mib)
    )
    scoring = ScoringSection(workers=WORKERS, lint_slots=WORKERS, cache="", reruns=0)
    return await open_scorer(
        every_component(), opened, sandbox=sandbox, scoring=scoring, stack=stack
    )


def detection(cases: Sequence[Case], rewards: Sequence[Reward]) -> dict[str, Any]:
    """Share of each flaw's patches on which the right component fires, and of clean ones on which
    each fires that should not."""
    fired: dict[str, list[bool]] = defaultdict(list)
    wrong: Counter[str] = Counter()
    others: Counter[str] = Counter()
    clean_count = 0
    for case, reward in zip(cases, rewards, strict=True):
        firing = {s.name for s in reward.scores if s.value is not None and s.value > FIRES}
        firing -= {"tests", "similarity"}  # these earn
        if case.set == "clean":
            clean_count += 1
            others["clean"] += bool(firing)
            wrong.update(firing)
        else:
            fired[case.set].append(KINDS[case.set] in firing)
    return {
        "detected": {kind: round(sum(hits) / len(hits), 3) for kind, hits in fired.items()},
        "detected_overall": round(_mean([hit for hits in fired.values() for hit in hits]), 4),
        "clean_fired": round(others["clean"] / clean_count, 4) if clean_count else None,
        "clean_fired_by": dict(wrong),
    }


def distributions(
    cases: Sequence[Case], rewards: Sequence[Reward]
) -> dict[str, dict[str, dict[str, float]]]:
    """By set and component: mean value, its p50, p90 and largest, and the share above `FIRES`."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case, reward in zip(cases, rewards, strict=True):
        for score in reward.scores:
            if score.value is not None:
                values[case.set][score.name].append(score.value)
    return {
        name: {component: _spread(found) for component, found in by_component.items()}
        for name, by_component in values.items()
    }


def unknown(rewards: Sequence[Reward]) -> Mapping[str, int]:
    """How many scores could not be measured, by component."""
    return dict(Counter(s.name for r in rewards for s in r.scores if s.status == "unknown"))


def _spread(values: Sequence[float]) -> dict[str, float]:
    named = {f"p{share * 100:.0f}": round(percentile(values, share), 3) for share in SHARES}
    fires = _mean([value > FIRES for value in values])
    return {"mean": round(_mean(values), 3), **named, "fires": round(fires, 3), "n": len(values)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def timed(cases: Sequence[Case], say: Callable[[str], None]) -> tuple[list[Reward], float]:
    """All scored, and the seconds that took."""
    start = time.perf_counter()

    def on_scored(number: int) -> None:
        if number % 50 == 0:
            say(f"{number} of {len(cases)} scored, {time.perf_counter() - start:.0f} s")

    rewards = anyio.run(score_all, cases, on_scored)
    return rewards, time.perf_counter() - start
