"""Rollouts that are chosen out of runs, and gold repairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_model import byte_tokenizer
from tokenizer_folders import write_tokenizer

from patchgym.agent import Completion, RepairAgent, StopReason, Trajectory, Turn
from patchgym.agent.repair.source import replace_function
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import Reward, Verdict
from patchgym.trainer.config import ModelSection, RunConfig, RunSection
from patchgym.trainer.errors import UserError
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import WorkItem
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.sft import (
    Candidate,
    Gathered,
    choose,
    gather,
    load_sft_config,
    pinned,
)
from patchgym.trainer.sft.config import DataSection
from patchgym.trainer.sft.dataset import to_groups
from patchgym.trainer.sft.gold import gold_function, patched, read_gold
from patchgym.trainer.trajectory_store import TrajectoryStore

VOCABULARY = 260


def gathered(*sources: str | Path, **settings: str) -> Gathered:
    """What the sources come to for the byte tokenizer."""
    pairs = [("data.sources", json.dumps([str(source) for source in sources]))]
    pairs += [(key.replace("__", "."), value) for key, value in settings.items()]
    config = pinned(load_sft_config(None, pairs))
    return gather(config, byte_tokenizer(), vocabulary=VOCABULARY, on_source=lambda name: None)


def candidate(name: str, task: str = "a", reward: float | None = 1.0, **more: Any) -> Candidate:
    plain: dict[str, Any] = {"stop_reason": "submitted", "resolved": True, "sampled_tokens": 10}
    return Candidate(rollout_id=name, task_id=task, reward=reward, **{**plain, **more})


POOL = (
    candidate("long", sampled_tokens=30),
    candidate("short", sampled_tokens=20),
    candidate("same", sampled_tokens=25),
    candidate("wrong", reward=0.4, resolved=False),
    candidate("cut", stop_reason="turn_limit"),
    candidate("unknown", reward=None, resolved=False),
    candidate("other", task="b", reward=0.2, resolved=False),
)
PATCHES = {"long": b"1", "short": b"2", "same": b"2", "wrong": b"3", "other": b"1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["short", "long"]),
        ({"per_task": 1}, ["short"]),
        ({"keep": "best"}, ["short", "long", "wrong", "other"]),
        ({"keep": "best", "per_task": 1}, ["short", "other"]),
        ({"keep": "best", "min_reward": 0.3}, ["short", "long", "wrong"]),
        ({"keep": "all", "per_task": 0}, ["short", "same", "long", "wrong", "unknown", "other"]),
    ],
)
def test_rollouts_are_chosen_by_reward_each_patch_once_and_so_many_of_a_task(
    settings: dict[str, Any], expected: list[str]
) -> None:
    data = DataSection(**settings)
    chosen = choose(POOL, data, lambda each: PATCHES.get(each.rollout_id, b""))
    assert [each.rollout_id for each in chosen] == expected
    turned = choose(POOL[::-1], data, lambda each: PATCHES.get(each.rollout_id, b""))
    assert turned == chosen, "the order of the rows plays no part"


def turn(context: Sequence[int], tokens: Sequence[int], *, restarts: bool = False) -> Turn:
    completion = Completion(
        tokens=tuple(tokens), logprobs=(-1.0,) * len(tokens), policy_version=0, finish="eos"
    )
    return Turn(context=tuple(context), completion=completion, text="", restarts=restarts)


async def write_run(
    root: Path, tokenizer: Path, rollouts: Sequence[tuple[str, str, float, tuple[Turn, ...]]]
) -> RunFolder:
    """A run's folder with rollouts of (id, purpose, reward, turns)."""
    config = RunConfig(
        run=RunSection(folder=str(root), name="source"), model=ModelSection(path=str(tokenizer))
    )
    folder = create_run(config)
    async with Ledger(folder.ledger) as ledger:
        recorder = Recorder(ledger, TrajectoryStore(folder.trajectories), FailureBudgets())
        for number, (name, purpose, total, turns) in enumerate(rollouts):
            item = WorkItem(
                rollout_id=name, group_id="g", task=bundled_tasks("train")[number % 2], member=0,
                attempt=0, seed=0,
            )  # fmt: skip
            stop: StopReason = "submitted"
            trajectory = Trajectory(
                rollout_id=name, task_id=item.task.id, seed=0, turns=turns, stop_reason=stop,
                outcome=name.encode(),
            )  # fmt: skip
            verdict = Verdict(status="resolved" if total == 1 else "unresolved", evidence="report")
            reward = Reward(total=total, scores=(), verdict=verdict)
            await recorder.rollout(purpose, item, trajectory, reward)
    return folder


async def test_a_runs_rollouts_come_with_their_ids_and_never_those_it_measured(
    tmp_path: Path,
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    rewritten = (turn((1, 5), (6, 2)), turn((7,), (8, 2)), turn((1, 9), (9, 2), restarts=True))
    folder = await write_run(
        tmp_path / "runs",
        tokenizer,
        [
            ("r0", "train", 1.0, rewritten),
            ("r1", "train", 0.0, (turn((1, 5), (4, 2)),)),
            ("after-000-s0", "after", 1.0, (turn((1, 5), (3, 2)),)),
        ],
    )
    found = gathered(folder.path)
    (one,) = found.examples
    assert [each.tokens for each in one.sequences] == [(1, 5, 6, 2, 7, 8, 2), (1, 9, 9, 2)]
    assert one.sequences[0].loss_mask == (False, False, True, True, False, True, True)
    assert (one.source, one.exact, found.left_out) == ("source/r0", True, 1)
    ((first, second),) = to_groups([one])
    assert (first.first, second.first, first.advantage) == (True, False, 1.0)
    assert len(gathered(folder.path, data__keep="best").examples) == 2


async def test_a_run_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    folder = await write_run(
        tmp_path / "runs", tokenizer, [("r0", "train", 1.0, (turn((1, 5), (4, 2)),))]
    )
    settings = json.loads((tokenizer / "tokenizer_config.json").read_text())
    settings["eos_token"] = "<|endoftext|>"
    template = settings["chat_template"].replace("<|im_end|>", "<|endoftext|>")
    settings["chat_template"] = template
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"source: its ids are of the tokenizer .* --format chat"):
        gathered(folder.path)


def test_a_diff_is_applied_as_git_does() -> None:
    source = "a\nb\nc\nd\ne\nf\n"
    diff = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n"
        "@@ -1,2 +1,3 @@\n-a\n+A\n+AA\n b\n@@ -5,2 +6,1 @@\n e\n-f\n"
    )
    assert patched(source, diff, "x") == "A\nAA\nb\nc\nd\ne\n"
    assert patched(source, diff, "y") == source


def test_gold_repairs_are_what_the_repair_agent_would_read_as_right() -> None:
    tokenizer, tasks = byte_tokenizer(), bundled_tasks("train")[:12]
    found = Gathered()
    read_gold(tasks, tokenizer, found)
    assert [each.task for each in found.examples] == [task.id for task in tasks]
    for each, task in zip(found.examples, tasks, strict=True):
        assert task.focus is not None
        assert task.files is not None
        source = task.files[task.focus.path]
        (sequence,) = each.sequences
        said = [t for t, keep in zip(sequence.tokens, sequence.loss_mask, strict=True) if keep]
        agent = RepairAgent(tokenizer)
        agent._function = task.focus.function
        completion = Completion(
            tokens=tuple(said), logprobs=(0.0,) * len(said), policy_version=0, finish="eos"
        )
        (call,) = agent.act(completion).calls
        changed = replace_function(source, task.focus.function, str(call.arguments["code"]))
        assert changed == by_lines(task, source)
        assert changed != source


def by_lines(task: Task, source: str) -> str:
    """The gold patch of a one-hunk diff of a whole file: its kept and added lines."""
    body = [line for line in task.gold_patch.splitlines() if line[:1] in " +"]
    return "".join(f"{line[1:]}\n" for line in body if not line.startswith("+++"))


def test_a_gold_function_that_is_gone_is_none() -> None:
    task = bundled_tasks("train")[0]
    assert task.focus is not None
    assert task.files is not None
    source = task.files[task.focus.path]
    assert (gold_function(task, source) or "").startswith(f"def {task.focus.function}(")
    renamed = replace(task, focus=replace(task.focus, function="other"))
    assert gold_function(renamed, source) is None
