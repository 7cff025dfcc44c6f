"""The corpus of flawed patches: every diff applies, and ours fire on theirs and on no clean one."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from flawed_patches import KINDS, VARIANTS, clean, flawed

from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards.changes import read_change
from patchgym.rewards.component import Component
from patchgym.rewards.components.needless_changes import NeedlessChanges
from patchgym.rewards.components.patch_size import PatchSize
from patchgym.rewards.registry import BUILT_IN
from patchgym.rewards.scene import Change, Scene

TASKS = [task for task in bundled_tasks("train") if task.pass_to_pass]
OURS: dict[str, Component] = {"needless_changes": NeedlessChanges(), "patch_size": PatchSize()}
EACH = 6  # patches of a kind
FIRES = 0.05


@pytest.fixture(scope="module")
def repositories() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def scene_of(task: Task, diff: bytes, repositories: Path) -> Scene:
    folder = materialize(task, repositories)
    made = read_change(task, diff, folder)
    gold = read_change(task, task.gold_patch.encode(), folder)
    assert (made.problem, gold.problem) == ("", "")
    return Scene(task=task, diff=diff, change=made, gold=gold)


def parses(change: Change) -> None:
    for file in change.files:
        if file.path.endswith(".py") and file.after is not None:
            ast.parse(file.after)


@pytest.mark.parametrize("kind", KINDS)
def test_flawed_patches_apply_parse_and_set_off_their_component(
    kind: str, repositories: Path
) -> None:
    for seed in range(EACH):
        task = TASKS[seed * 19 % len(TASKS)]
        scene = scene_of(task, flawed(task, kind, seed), repositories)
        parses(scene.change)
        assert (
            scene.change.tree
            != read_change(task, task.gold_patch.encode(), materialize(task, repositories)).tree
        )
        if component := OURS.get(KINDS[kind]):
            assert component.measure(scene).value > FIRES


@pytest.mark.parametrize("variant", VARIANTS)
def test_clean_patches_apply_parse_and_set_nothing_off(variant: str, repositories: Path) -> None:
    for seed in range(EACH):
        task = TASKS[seed * 23 % len(TASKS)]
        scene = scene_of(task, clean(task, variant, seed), repositories)
        parses(scene.change)
        for component in OURS.values():
            assert component.measure(scene).value <= FIRES


def test_a_seed_always_gives_the_same_patch_and_seeds_differ() -> None:
    task = TASKS[0]
    for kind in KINDS:
        made = [flawed(task, kind, seed) for seed in range(6)]
        assert flawed(task, kind, 0) == made[0]
        assert len(set(made)) > 1


def test_every_kind_names_a_component_that_there_is() -> None:
    assert set(KINDS.values()) <= set(BUILT_IN)


def test_a_task_without_inline_files_is_refused() -> None:
    task = TASKS[0]
    bare = Task(
        id="x",
        statement="x",
        base_commit=task.base_commit,
        gold_patch=task.gold_patch,
        fail_to_pass=task.fail_to_pass,
        test_files=task.test_files,
        repository="somewhere",
    )
    with pytest.raises(ValueError, match="x has no inline files"):
        flawed(bare, "secret", 0)


def test_a_regression_needs_a_test_to_lose() -> None:
    task = next(task for task in bundled_tasks("train") if not task.pass_to_pass)
    with pytest.raises(ValueError, match=f"{task.id} has no test to lose"):
        flawed(task, "regression", 0)
