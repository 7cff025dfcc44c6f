"""Conversations out of a run's folder: the rollouts that were chosen, with the ids they sampled."""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.trainer.agent_evaluation import is_evaluation, open_evaluation
from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.formats import FormatError, SftSequence
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.policies import fingerprint, load_chat_tokenizer
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import StoredRollout, TrajectoryStore

from .config import DataSection
from .dataset import Example, Gathered
from .folder import is_supervised
from .selection import Candidate, choose

_PURPOSES = ("train", "policy")
"""Training rollouts and those of an evaluation by itself; never what a training run measured."""


def read_run(folder: RunFolder, data: DataSection, mark: str, into: Gathered) -> None:
    """Add the rollouts of a run that `data` keeps.

    `mark` is the fingerprint of the model's tokenizer. Raises UserError for a run of another
    vocabulary, and RunError for one that holds no rollouts or a damaged one.
    """
    _check_vocabulary(folder, mark)
    candidates = _candidates(folder)
    shelf = _Shelf(store=TrajectoryStore(folder.trajectories), read={})
    chosen = choose(candidates, data, lambda each: shelf.get(each).trajectory.outcome)
    into.left_out += len(candidates) - len(chosen)
    for each in chosen:
        source = f"{folder.path.name}/{each.rollout_id}"
        try:
            sequences = _sequences(shelf.get(each))
        except FormatError as error:
            into.dropped[source] = str(error)
            continue
        example = Example(sequences=sequences, source=source, task=each.task_id, exact=True)
        into.examples.append(example)


@dataclass(slots=True, kw_only=True)
class _Shelf:
    """Stored rollouts, each read once."""

    store: TrajectoryStore
    read: dict[str, StoredRollout]

    def get(self, each: Candidate) -> StoredRollout:
        """RunError when its file is missing or damaged."""
        if each.rollout_id not in self.read:
            self.read[each.rollout_id] = self.store.read(each.rollout_id)
        return self.read[each.rollout_id]


def _sequences(stored: StoredRollout) -> tuple[SftSequence, ...]:
    segments = stored.trajectory.segments()
    if not segments:
        raise FormatError("it has no turn")
    return tuple(SftSequence(tokens=s.tokens, loss_mask=s.loss_mask) for s in segments)


def _candidates(folder: RunFolder) -> list[Candidate]:
    sql = f"SELECT * FROM rollouts WHERE purpose IN ({','.join('?' * len(_PURPOSES))})"
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows(sql, _PURPOSES)
    if not rows:
        raise RunError(f"{folder.path}: no rollout in it that could be trained on")
    return [
        Candidate(
            rollout_id=row["id"],
            task_id=row["task_id"],
            stop_reason=row["stop_reason"],
            reward=row["reward"],
            resolved=row["verdict"] == "resolved",
            sampled_tokens=row["sampled_tokens"],
        )
        for row in rows
    ]


def _check_vocabulary(folder: RunFolder, mark: str) -> None:
    """Stored ids mean something to the tokenizer that they were made with, and to no other."""
    if is_supervised(folder):
        raise UserError(f"{folder.path}: a supervised run has no rollouts; name its own sources")
    source = folder.load_config().model.path
    if is_evaluation(folder):
        policy = open_evaluation(folder).policy
        if not policy:
            raise RunError(f"{folder.path}: nothing was rolled out there yet")
        if not policy["trainable"]:
            raise UserError(
                f"{folder.path}: {policy['model']} answered in text: a chat endpoint's words are "
                "not trained on"
            )
        source = str(policy["tokenizer"])
    theirs = fingerprint(load_chat_tokenizer(source))
    if theirs != mark:
        raise UserError(
            f"{folder.path}: its ids are of the tokenizer of {source} ({theirs}), the model's is "
            f"{mark}: write its words with patchgym runs export {folder.path.name} --format chat, "
            "and give that file"
        )
