"""A run of any number of rollouts for the dashboard's benchmark: the real schema, made-up numbers.

A policy that learns: pass rates rise by task, rollouts take seconds to minutes, some fail. Eight
rollouts a group, four groups a step, six turns and three scores a rollout.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchgym.trainer.config import RunConfig, config_to_toml
from patchgym.trainer.ledger.schema import bring_up_to_date

GROUP, PER_STEP, TURNS, TASKS = 8, 4, 6, 500
TOOLS = ("read_file", "search", "replace_function", "run_tests", "")
STEP_SECONDS = 95.0
_START = 1.79e9


def make_run(folder: Path, rollouts: int, seed: int = 0) -> Path:
    """Make `folder` a finished run of about `rollouts` training rollouts (blocking, seconds)."""
    (folder / "trajectories").mkdir(parents=True)
    steps = max(1, rollouts // (GROUP * PER_STEP))
    config = RunConfig()
    config = replace(config, run=replace(config.run, steps=steps, name=folder.name, seed=seed))
    (folder / "run.toml").write_text(config_to_toml(config))
    connection = sqlite3.connect(folder / "run.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    bring_up_to_date(connection, 0)
    connection.execute("BEGIN")
    chance = random.Random(seed)
    ease = {f"repair/{name}": chance.betavariate(1.2, 2.0) for name in _task_names(chance)}
    account = _fill(connection, chance, ease, steps)
    _finish(connection, account, steps)
    connection.execute("COMMIT")
    connection.close()
    return folder


def _fill(
    connection: sqlite3.Connection, chance: random.Random, ease: dict[str, float], steps: int
) -> Counter[str]:
    waited: Counter[str] = Counter()
    tasks, number = list(ease), 0
    for step in range(steps):
        learned = 0.35 * step / steps
        rows = []
        for _ in range(PER_STEP):
            task = chance.choice(tasks)
            now = _START + STEP_SECONDS * step + chance.random() * 60
            group = f"g{number:05d}"
            rate = min(0.97, ease[task] * 0.8 + learned)
            found = [_rollout(chance, group, task, m, step, now, rate) for m in range(GROUP)]
            rows += found
            _put_group(connection, chance, group, task, number, step, now, found)
            number += 1
        _put_rollouts(connection, chance, rows)
        metrics = _metrics(chance, step, rows, waited)
        values = (step, json.dumps(metrics), _START + STEP_SECONDS * (step + 1))
        connection.execute("INSERT INTO steps VALUES (?, ?, ?)", values)
    return waited


def _rollout(
    chance: random.Random, group: str, task: str, member: int, step: int, now: float, rate: float
) -> tuple[Any, ...]:
    solved = chance.random() < rate
    stop = chance.choices(
        ("solved" if solved else "submitted", "max_turns", "timeout", "infra"), (90, 6, 3, 1)
    )[0]
    solved = solved and stop == "solved"
    sampling, tools = chance.lognormvariate(3, 0.5), chance.lognormvariate(1.2, 0.9)
    scoring = chance.lognormvariate(0.3, 0.8)
    verdict = "unknown" if stop == "infra" else "resolved" if solved else "unresolved"
    reward = None if stop == "infra" else round(float(solved) - 0.05 * chance.random(), 4)
    oldest = max(0, step - chance.choice((0, 0, 0, 1)))
    return (
        f"{group}-m{member}", "train", group, task, member, stop, "", reward, verdict, TURNS,
        chance.randrange(150, 900), oldest, sampling + tools, "", now + sampling + tools, step,
        chance.randrange(1500, 6000), sampling, tools, scoring, "junit", 0,
    )  # fmt: skip


def _put_group(
    connection: sqlite3.Connection,
    chance: random.Random,
    group: str,
    task: str,
    number: int,
    step: int,
    now: float,
    rows: list[tuple[Any, ...]],
) -> None:
    state, reason = ("dropped", "no_spread") if chance.random() < 0.12 else ("committed", "")
    members = json.dumps([row[0] for row in rows])
    values = (
        group, task, number, state, reason, step if state == "committed" else None, members,
        now + 80, step, 3, now, now + 70, now + 75,
    )  # fmt: skip
    connection.execute(f"INSERT INTO groups VALUES ({','.join('?' * 13)})", values)


def _put_rollouts(
    connection: sqlite3.Connection, chance: random.Random, rows: list[tuple[Any, ...]]
) -> None:
    connection.executemany(f"INSERT INTO rollouts VALUES ({','.join('?' * 22)})", rows)
    connection.executemany(
        f"INSERT INTO turns VALUES ({','.join('?' * 10)})",
        (
            (row[0], turn, row[11], 400, 90, "stop", tool, "output" if tool else "",
             row[17] / TURNS, row[18] / TURNS * (3 if tool == "run_tests" else 0.5))
            for row in rows
            for turn, tool in enumerate(chance.choices(TOOLS, k=TURNS))
        ),
    )  # fmt: skip
    connection.executemany(
        f"INSERT INTO scores VALUES ({','.join('?' * 8)})",
        (
            (row[0], name, row[7], weight, "measured", row[19] / 3, "", "1")
            for row in rows
            for name, weight in (("tests", 1.0), ("patch_size", 0.05), ("lint", 0.1))
        ),
    )


def _metrics(
    chance: random.Random, step: int, rows: list[tuple[Any, ...]], waited: Counter[str]
) -> dict[str, Any]:
    known = [row for row in rows if row[7] is not None]
    seconds, scoring = sorted(row[12] for row in rows), sorted(row[19] for row in rows)
    for name, most in (("sampling", 30), ("tool run_tests", 9), ("scoring", 4), ("lease wait", 2)):
        waited[name] += chance.random() * most
    share = step / (step + 60)
    return {
        "step": step + 1, "applied": True, "reason": "", "loss": 0.25 - 0.1 * share
        + chance.gauss(0, 0.02), "grad_norm": chance.lognormvariate(-0.4, 0.2),
        "learning_rate": 4e-5, "entropy": 0.95 - 0.35 * share + chance.gauss(0, 0.015),
        "mean_ratio": 1.0, "clipped_fraction": chance.random() * 0.06, "truncated_fraction": 0.0,
        "rejected_fraction": 0.0, "reference_kl": 0.0, "mismatch_kl": chance.random() * 0.02,
        "mismatch_mean": 0.08, "mismatch_max": 2.2, "sequences": len(rows), "loss_tokens":
        sum(row[10] for row in rows), "flat_tokens": 60000, "tree_tokens": 30000,
        "padded_tokens": 32000, "rows": 7, "compilations": 0, "pack_seconds": 0.1,
        "gradient_seconds": 40 + chance.random() * 9, "update_seconds": 0.6,
        "reward": sum(row[7] for row in known) / len(known),
        "pass_rate": sum(row[8] == "resolved" for row in known) / len(known),
        "rollouts": len(rows), "outcomes": dict(Counter(row[5] for row in rows)),
        **_percentiles("rollout", seconds), **_percentiles("reward", scoring),
        "sampled_tokens": sum(row[10] for row in rows), "slot_use": 0.6 + 0.3 * chance.random(),
        "loop_blocked": 0.02, "loop_lag_p99": 0.01, "staleness": {"0": 3, "1": 1},
        "dropped": {"no_spread": step // 2}, "queue": {"depth": chance.randrange(0, 8),
        "capacity": 8}, "clock_seconds": STEP_SECONDS * (step + 1), "waited_seconds": dict(waited),
    }  # fmt: skip


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    return {
        f"{name}_p{p}": values[min(len(values) - 1, p * len(values) // 100)] for p in (50, 95, 99)
    }


def _finish(connection: sqlite3.Connection, waited: Counter[str], steps: int) -> None:
    total = STEP_SECONDS * steps
    busy = {"training": total - sum(waited.values()) - 6.0 * steps, "publishing": 4.0 * steps,
            "checkpointing": 1.5 * steps, "bookkeeping": 0.5 * steps}  # fmt: skip
    idle = {
        "seconds": total,
        "idle_share": sum(waited.values()) / total,
        "idle_reasons": {name: value / total for name, value in waited.most_common()},
        "busy": busy,
    }
    rate = {"samples": 160, "effective_samples": 95.0}
    meta = {
        "state": "finished",
        "seconds": total + 300.0,
        "idle": idle,
        "evaluation.before": {"pass_rate": 0.29, "interval": [0.21, 0.38], **rate},
        "evaluation.after": {"pass_rate": 0.61, "interval": [0.52, 0.70], **rate},
        "end": {"how": "finished", "step": steps, "time": _START + total, "stage": "", "kind": "",
                "words": "", "more": 0},
    }  # fmt: skip
    for key, value in meta.items():
        connection.execute("INSERT INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def _task_names(chance: random.Random) -> Iterator[str]:
    words = (
        "reverse",
        "merge",
        "clamp",
        "parse",
        "slug",
        "chunk",
        "rotate",
        "median",
        "roman",
        "wrap",
    )
    kinds = ("text", "range", "pairs", "dates", "matrix", "words", "tree", "money", "path", "graph")
    for number in range(TASKS):
        yield f"{words[number % 10]}_{kinds[number // 10 % 10]}-{chance.randrange(16**8):08x}"
