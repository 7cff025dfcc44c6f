"""A step that is not finite: skipped, counted, the run stopped past the budget, the batch kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from learner_inputs import forked_group
from tiny_model import TINY, byte_tokenizer

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.config import load_config
from patchgym.trainer.errors import RunError, RunStopped
from patchgym.trainer.learner import Learner
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.progress import Progress
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.replay import load_batch, open_learner, skipped_batches
from patchgym.trainer.resume import Restored, restore_groups
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.simulation import Latency, SimulatedResources, World, open_simulated
from patchgym.trainer.training import Training
from patchgym.trainer.trajectory_store import TrajectoryStore
from patchgym.trainer.weights import export_folder

QUICK = World(
    turns=2,
    turn_tokens=6,
    generation=Latency(spec="const:0.001"),
    reset=Latency(spec="const:0.001"),
    step=Latency(spec="const:0.001"),
    reward=Latency(spec="const:0.001"),
)
SETTINGS = {
    "run.name": "broken",
    "run.steps": "4",
    "group.size": "4",
    "group.per_step": "2",
    "rollout.in_flight": "8",
    "rollout.max_new_tokens": "6",
    "rollout.context_tokens": "128",
    "learner.row_tokens": "[256]",
    "learner.skip_budget": "1",
}

Batch = Sequence[Sequence[TrainSequence]]


@dataclass(slots=True, kw_only=True)
class Watched(SimulatedResources):
    """Keeps what the learner was given."""

    given: list[Batch] = field(default_factory=list)

    async def train(self, batch: Batch) -> dict[str, object]:
        """As ever."""
        self.given.append(batch)
        return await SimulatedResources.train(self, batch)


def broken_run(tmp_path: Path) -> RunFolder:
    """A run of a model with a weight that is not a number."""
    params = jax.tree.map(np.array, init_params(TINY, 0))
    params["norm"][0] = np.nan
    export_folder(TINY, params, byte_tokenizer(), tmp_path / "model")
    more = {"run.folder": str(tmp_path), "model.path": str(tmp_path / "model")}
    return create_run(load_config(None, [*SETTINGS.items(), *more.items()]))


async def train(folder: RunFolder, restored: Restored) -> list[Batch]:
    """Train in the simulated world until the run is stopped; what the learner was given."""
    config = folder.load_config()
    made = open_simulated(config, QUICK)
    values = {each.name: getattr(made, each.name) for each in fields(made) if each.init}
    resources = Watched(**{**values, "learner": open_learner(folder, 0)})
    async with Ledger(folder.ledger) as ledger:
        training = Training(
            config,
            resources,
            ledger=ledger,
            recorder=Recorder(ledger, TrajectoryStore(folder.trajectories), config.failures),
            progress=Progress(),
            restored=restored,
        )
        with pytest.RaisesGroup(
            pytest.RaisesExc(RunStopped, match="step 1 was not applied: the loss is nan"),
            allow_unwrapped=True,
            flatten_subgroups=True,
        ):
            await training.train()
        await ledger.flush()
    return resources.given


def bits(batch: Batch) -> list[Any]:
    """All that the learner reads of a batch."""
    return [
        [
            (s.tokens.tobytes(), s.loss_mask.tobytes(), s.sampler_logprobs.tobytes(), s.advantage)
            for s in group
        ]
        for group in batch
    ]


@pytest.mark.anyio
async def test_what_was_skipped_is_counted_kept_and_trained_on_again(tmp_path: Path) -> None:
    folder = broken_run(tmp_path)
    given = await train(folder, Restored())
    assert len(given) == 2, "one was left out, the next was past the budget"
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows("SELECT state, reason FROM groups WHERE state != 'pending'")
        dropped = [row for row in rows if row["reason"] == "not_finite"]
        assert len(dropped) == 2
        events = reader.rows("SELECT detail FROM events WHERE kind = 'alarm'")
        assert any("its groups are left out" in row["detail"] for row in events)

    skipped = skipped_batches(folder)
    assert [(one.step, one.reason) for one in skipped] == [(0, "the loss is nan")] * 2
    assert [bits(load_batch(folder, one.groups)) for one in skipped] == [bits(b) for b in given]
    report = open_learner(folder, 0).train(load_batch(folder, skipped[1].groups))
    assert (report.applied, report.reason) == (False, "the loss is nan")

    restored = restore_groups(folder.ledger, TrajectoryStore(folder.trajectories), 0)
    assert restored.skipped == 1, "the batch that ended the run was not left out"
    assert set(skipped[1].groups) <= {group.group_id for group in restored.ready}


@pytest.mark.anyio
async def test_a_resumed_run_has_no_budget_that_was_spent_before(tmp_path: Path) -> None:
    folder = broken_run(tmp_path)
    await train(folder, Restored())
    restored = restore_groups(folder.ledger, TrajectoryStore(folder.trajectories), 0)
    assert len(await train(folder, restored)) == 1


def test_a_learner_is_opened_where_it_was_or_before(tmp_path: Path) -> None:
    folder = broken_run(tmp_path)
    learner = open_learner(folder, 7)
    assert learner.step == 0
    store = CheckpointStore(folder.checkpoints, keep=3)
    learner = Learner(folder.load_config().learner, TINY, init_params(TINY, 0))
    for step in range(3):
        learner.train([forked_group(np.random.default_rng(step))])
        store.save(learner)
    store.close()
    assert [open_learner(folder, step).step for step in (0, 2, 9)] == [0, 2, 3]
    names = sorted(path.name for path in folder.checkpoints.iterdir())
    assert names == ["1", "2", "3"], "looking removes nothing"


@pytest.mark.anyio
async def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = broken_run(tmp_path)
    async with Ledger(folder.ledger) as ledger:
        ledger.group("g00003", "t", 3, "pending")
    for name in ("g00003", "g99999"):
        with pytest.raises(RunError, match=f"no whole group '{name}'"):
            load_batch(folder, [name])
