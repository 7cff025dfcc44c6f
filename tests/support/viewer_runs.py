"""Runs on disk for the trajectory viewer, written by the real ledger and the real store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import anyio

from patchgym.agent import Completion, Observation, StopReason, ToolCall, Trajectory, Turn
from patchgym.rewards import Fault, Reward, Score, Verdict
from patchgym.sandbox import Flake
from patchgym.trainer.config import RunConfig, config_to_toml
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.rollout_file import StoredRollout
from patchgym.trainer.trajectory_store import TrajectoryStore

PATCH = b"""diff --git a/half.py b/half.py
--- a/half.py
+++ b/half.py
@@ -1,2 +1,3 @@
 def half(x):
-    return x * 2
+    import os
+    return x / 2
"""

ATTACK = (
    "<script>document.title = 'owned'</script></script>"
    "<img src=x onerror=\"document.title='owned'\">"
    "<svg onload=\"document.title='owned'\"></svg></pre></textarea></title></style><!--"
    "<a href=\"javascript:document.title='owned'\">click</a>"
    " {{ 7 * 7 }} ${7*7} '\" onfocus=alert(1) x='"
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example/\x07link\x1b]8;;\x07 \x1b]0;title\x07"
    " user\u202eresu\u2066 zero\u200bwidth \x00\x07\x08 \ud800 \U000e0041 \u2028 "
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a"
)
"""What must do nothing wherever it stands."""


def turn(
    text: str = "mend it",
    observation: str = "ok",
    *,
    tokens: Sequence[int] = (50, 51),
    dropped: int = 0,
    diff: bytes = b"",
    outcomes: dict[str, str] | None = None,
    arguments: dict[str, object] | None = None,
) -> Turn:
    """A turn with one call and its answer."""
    given: dict[str, object] = {"path": "half.py"} if arguments is None else arguments
    seen: dict[str, object] = {"outcomes": outcomes or {}}
    return Turn(
        context=(1, 2, 3),
        completion=Completion(
            tokens=tuple(tokens),
            logprobs=tuple(-0.25 * (place + 1) for place in range(len(tokens))),
            policy_version=4,
            finish="eos",
        ),
        text=text,
        calls=(ToolCall(name="edit", arguments=given),),
        observations=(
            Observation(
                kind="output", text=observation, done=False, tool="edit", dropped=dropped,
                diff=diff, **seen,  # type: ignore[arg-type]
            ),
        ),
        sample_seconds=1.5,
        tool_seconds=0.5,
    )  # fmt: skip


def trajectory(
    name: str = "g00000-m0",
    turns: Sequence[Turn] = (),
    *,
    task: str = "repair/half",
    stop: StopReason = "submitted",
    outcome: bytes = PATCH,
    error: str = "",
) -> Trajectory:
    """A trajectory of `turns`."""
    return Trajectory(
        rollout_id=name,
        task_id=task,
        seed=7,
        turns=tuple(turns),
        stop_reason=stop,
        outcome=outcome,
        error=error,
        seconds=12.5,
    )


def judged(
    total: float | None = 1.0,
    *,
    outcomes: dict[str, str] | None = None,
    messages: dict[str, str] | None = None,
    flaky: dict[str, Flake] | None = None,
    log: str = "",
    detail: str = "",
    fault: str = "an import inside of a function",
) -> Reward:
    """A reward with a component that found something."""
    status = "unknown" if total is None else "resolved" if total >= 1 else "unresolved"
    verdict: dict[str, object] = {
        "status": status,
        "evidence": "infra" if total is None else "report",
        "outcomes": outcomes if outcomes is not None else {"test_half": "passed"},
        "messages": messages or {},
        "flaky": flaky or {},
    }
    scores = (
        Score(name="tests", value=total, weight=1.0, evidence={"fail_to_pass": 1}, version="1"),
        Score(
            name="lint",
            value=0.25,
            weight=0.0,
            evidence={"rules": ["PLC0415"]},
            faults=(Fault(message=fault, path="half.py", line=2),),
        ),
    )
    return Reward(
        total=total,
        scores=() if total is None else scores,
        verdict=Verdict(log=log, detail=detail, **verdict),  # type: ignore[arg-type]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A rollout to be written."""

    trajectory: Trajectory
    reward: Reward
    group: str = "g00000"
    member: int = 0
    purpose: str = "train"
    file: bool = True
    """Whether its file is written, too."""
    scored: bool = True
    """Whether the file holds the reward."""


def hostile(name: str = "g00000-m0") -> Kept:
    """A rollout in which everything that can be foreign is."""
    # SQLite takes no half of a surrogate pair.
    kept = ATTACK.replace("\ud800", "")
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+" + ATTACK.encode("utf-8", "surrogatepass")
    acted = turn(
        ATTACK,
        ATTACK,
        diff=diff,
        outcomes={ATTACK: "failed"},
        arguments={ATTACK: ATTACK, "more": {"deep": [ATTACK]}, "lines": f"{ATTACK}\n{ATTACK}"},
    )
    reward = judged(
        0.0,
        outcomes={ATTACK: "failed"},
        messages={ATTACK: ATTACK},
        flaky={ATTACK: Flake(runs=2, failures=1)},
        log=ATTACK,
        detail=kept,
        fault=ATTACK,
    )
    made = trajectory(name, [acted], task=kept, outcome=diff, error=kept)
    return Kept(trajectory=made, reward=reward)


def write_run(folder: Path, rollouts: Sequence[Kept], *, committed: bool = True) -> Path:
    """A run called as `folder` is, whose groups (of purpose `train`) are `committed` at step 3."""
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(config_to_toml(RunConfig()))
    store = TrajectoryStore(folder / "trajectories")
    store.folder.mkdir()
    for each in rollouts:
        if each.file:
            store.write(
                StoredRollout(
                    trajectory=each.trajectory, reward=each.reward if each.scored else None
                )
            )
    # In a thread: where Playwright drives a browser, this one has a loop that runs.
    with ThreadPoolExecutor(1) as thread:
        path = folder / "run.sqlite"
        thread.submit(anyio.run, _record, path, rollouts, committed).result()
    return folder


async def _record(path: Path, rollouts: Sequence[Kept], committed: bool) -> None:
    async with Ledger(path) as ledger:
        ledger.meta("state", "finished")
        groups = dict.fromkeys(each.group for each in rollouts if each.purpose == "train")
        for number, group in enumerate(groups):
            members = [each for each in rollouts if each.group == group]
            ledger.group(group, members[0].trajectory.task_id, number, "pending")
        for each in rollouts:
            ledger.rollout(
                each.purpose,
                each.group,
                each.trajectory.task_id,
                each.member,
                each.trajectory,
                each.reward,
            )
        for number, group in enumerate(groups):
            members = [each for each in rollouts if each.group == group]
            names = [each.trajectory.rollout_id for each in members]
            task = members[0].trajectory.task_id
            ledger.group(group, task, number, "ready", members=names, version=4)
            if committed:
                ledger.group(group, task, number, "taken", step=3)
                ledger.group(group, task, number, "committed", step=3)
