"""All that the page of one rollout shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from patchgym.agent import STOP_RULES
from patchgym.trainer.agent_evaluation.folder import is_evaluation, open_evaluation
from patchgym.trainer.config import REPOSITORIES
from patchgym.trainer.dashboard.inert import inert
from patchgym.trainer.errors import UserError

from .diff_lines import DiffView, diff_view
from .excerpt import Excerpt, excerpt
from .judged_tests import JudgedTests, judged_tests
from .reward_view import RewardView, fault_messages, reward_view
from .rollout import Rollout
from .siblings import Siblings, loss_words
from .turn_view import TurnView, turn_view

MOST_TURNS = 200
"""Turns that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A rollout for its page."""

    row: Any
    """Of `rollouts`."""
    problem: str
    """Why its file can't be read; empty otherwise."""
    seed: int | None
    error: Markup
    """What failed; empty when nothing did."""
    stop_meaning: str
    loss: tuple[bool, str]
    """Whether it was trained on, and why so."""
    turns: tuple[TurnView, ...]
    more_turns: int
    diff: DiffView | None
    faults: Mapping[tuple[str, int], Sequence[Markup]]
    """What is said of lines of the diff, by path and number."""
    tests: JudgedTests | None
    reward: RewardView | None
    siblings: Siblings
    kept_turns: Sequence[Any]
    """Rows of the ledger, where the file is gone."""
    kept_scores: Sequence[Any]
    commands: tuple[tuple[str, str], ...]
    """What it does, and the command."""
    ledger_detail: Excerpt | None
    """What the ledger says of the verdict, where the file is gone."""


def detail_of(rollout: Rollout) -> Detail:
    """Everything about `rollout`. Blocks: reads the files of its siblings, too."""
    stored, row, reader = rollout.stored, rollout.row, rollout.run.reader
    rule = STOP_RULES.get(row["stop_reason"])
    diff = diff_view(stored.trajectory.outcome) if stored else None
    reward = stored.reward if stored else None
    turns = stored.trajectory.turns if stored else ()
    # A domain without repositories hands in something else, and has no components to add up.
    repository = rollout.config is not None and rollout.config.environment.use in REPOSITORIES
    settings = rollout.config.reward if rollout.config and repository else None
    return Detail(
        row=row,
        problem=rollout.problem,
        seed=stored.trajectory.seed if stored else None,
        error=inert(row["error"][:2_000]),
        stop_meaning=rule.meaning if rule else "",
        loss=loss_words(rollout.siblings, row),
        turns=tuple(
            turn_view(number, turn, replayed=bool(stored and number <= stored.trajectory.replayed))
            for number, turn in enumerate(turns[:MOST_TURNS], 1)
        ),
        more_turns=max(0, len(turns) - MOST_TURNS),
        diff=diff,
        faults=fault_messages(reward),
        tests=judged_tests(stored, rollout.outings()) if stored else None,
        reward=reward_view(reward, diff, settings) if reward and diff else None,
        siblings=rollout.siblings,
        kept_turns=() if stored else reader.turns(rollout.name),
        kept_scores=() if stored else reader.scores(rollout.name),
        commands=tuple(_commands(rollout, repository)),
        ledger_detail=excerpt(row["detail"]) if not stored and row["detail"] else None,
    )


def patch_file(name: str) -> str:
    """What the patch of the rollout called `name` is called when it is downloaded."""
    return f"{''.join(each if each.isalnum() or each in '-_.' else '.' for each in name)}.diff"


def _commands(rollout: Rollout, repository: bool) -> list[tuple[str, str]]:
    """What a person may want to run of it, elsewhere; nothing where its file is gone."""
    if rollout.stored is None:
        return []
    run, name = shlex.quote(str(rollout.run.folder.path)), shlex.quote(rollout.name)
    found = [("Read it in a terminal", f"patchgym runs show {run} --trajectory {name}")]
    tasks = _tasks(rollout) if repository else ""
    if tasks and rollout.stored.trajectory.outcome:
        task = shlex.quote(f"{tasks}#{rollout.row['task_id']}")
        file = shlex.quote(patch_file(rollout.name))
        found.append(
            ("Score its patch, once downloaded", f"patchgym score --task {task} --patch {file}")
        )
    return found


def _tasks(rollout: Rollout) -> str:
    """The file of its task; empty when it is not known."""
    folder, config = rollout.run.folder, rollout.config
    try:
        if is_evaluation(folder):
            return str(open_evaluation(folder).record["tasks"])
    except (UserError, LookupError):
        return ""
    if config is None:
        return ""
    return config.tasks.train if rollout.row["purpose"] == "train" else config.tasks.heldout
