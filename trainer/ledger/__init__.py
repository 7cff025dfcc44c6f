"""The ledger of a run: what happened to every rollout, group and step, in SQLite.

    event loop --transactions--> writer thread --batches--> run.sqlite (WAL) <-- readers, any number

**What it promises.** The checkpoint is the truth of what was learned, the ledger that of everything
else. After a kill at any moment, a resume from the newest checkpoint (of step C) trains no group
that its weights have seen, and loses none that they have not. That rests on what follows; the place
that keeps each is in brackets.

1. What is on disk is a beginning of what was recorded, cut between two transactions. [`writer`: one
   queue, one thread, a batch is one transaction of SQLite's, nothing is written past an error]
2. A group goes only where `states` lets it go; the change is refused where it is asked for, not
   where it is written. [`Ledger.group`]
3. A rollout's file is whole and synced before its row is recorded; its row, with its turns and
   scores, before its group is ready. So (1) a group that is ready on disk has every file that it
   names. [`Recorder.rollout` waits for the store; a group is whole only after that]
4. `taken` is recorded before a group is trained. It needs no sync: what is lost of it is a group
   that is `ready`, and both are ready again after a kill. It is there to say what a run died of.
5. All groups of an update are `committed` together with the step's row, in one transaction, and
   without waiting between the end of the update and that. So there is no step with half its groups,
   and no group of a step that has no row. [`Recorder.commit`]
6. That transaction is synced before the checkpoint of the update is begun. So every group that the
   weights of a checkpoint have seen is committed at a step below C, on disk: none is trained twice.
   [`Training`: `flush` before `save`; `Ledger.restore` refuses a ledger that ends before C]
7. It is recorded before the weights are published. So (1) a version that a rollout on disk names
   has its step there. A rollout of version v > C was sampled by weights that are lost, whatever the
   ledger says; its group runs again. [`restore_groups`]
8. What a resume makes of the groups (committed at C or later, or taken: ready; under way, or of
   weights that are lost: pending) is one transaction, synced before the first rollout of a group
   starts, so that nothing of the new run mixes with a group of the old. [`Ledger.restore`,
   `Training.train`]

A `kill` of the process loses what was not handed to the operating system: with 1, the last moments.
A power cut loses what was not synced, too: with 6, at most what followed the last step.

One process writes; the run folder's lock keeps others out. A ledger of an older version is brought
up to date when it is opened for writing (a copy is kept as `run.sqlite.backup`), and read as it is
by readers; a newer one is refused. `run.sqlite.backup` is renewed at checkpoints.
"""

from __future__ import annotations

from .damage import backup_path
from .known import group_name
from .reader import LedgerReader
from .record import Ledger
from .restore import RestoredGroup
from .schema import SCHEMA_VERSION
from .states import ALLOWED, GroupState, IllegalChange
from .writer import WriterStatistics

__all__ = [
    "ALLOWED",
    "SCHEMA_VERSION",
    "GroupState",
    "IllegalChange",
    "Ledger",
    "LedgerReader",
    "RestoredGroup",
    "WriterStatistics",
    "backup_path",
    "group_name",
]
