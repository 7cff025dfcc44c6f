"""One rollout for people: every turn with its text, its diff and its test results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from patchgym.agent import Observation, Turn
from patchgym.rewards import Reward, Score

from .score_table import place, plain, score_table
from .trajectory_store import StoredRollout
from .verdict_words import remarks

_FAULTS = 5
_STYLES = {"passed": "green", "failed": "red", "error": "red", "timeout": "yellow"}


def rollout_record(stored: StoredRollout) -> dict[str, Any]:
    """The rollout as JSON types; diffs as text."""
    record = dataclasses.asdict(stored)
    trajectory = record["trajectory"]
    trajectory["outcome"] = trajectory["outcome"].decode("utf-8", "backslashreplace")
    for turn in trajectory["turns"]:
        for observation in turn["observations"]:
            observation["diff"] = observation["diff"].decode("utf-8", "backslashreplace")
    return record


def print_rollout(stored: StoredRollout, console: Console) -> None:
    """Print the whole rollout."""
    trajectory = stored.trajectory
    console.print(
        f"[bold]{trajectory.rollout_id}[/bold]  task {trajectory.task_id}  "
        f"{trajectory.stop_reason}  {trajectory.seconds:.1f} s  seed {trajectory.seed}",
        highlight=False,
    )
    if trajectory.error:
        console.print(Text(trajectory.error, style="red"))
    for number, turn in enumerate(trajectory.turns, 1):
        _print_turn(number, turn, console)
    if stored.reward is not None:
        _print_reward(stored.reward, console)


def _print_turn(number: int, turn: Turn, console: Console) -> None:
    completion = turn.completion
    console.print(
        Rule(
            f"turn {number}: {len(turn.context)} context + {len(completion.tokens)} sampled ids, "
            f"policy version {completion.policy_version}, ended by {completion.finish}, "
            f"mean log-probability {sum(completion.logprobs) / len(completion.logprobs):.3f}"
        )
    )
    console.print(Text(turn.text))
    for call, observation in zip_longest(turn.calls, turn.observations):
        if call is not None:
            console.print(Text(f"call {call.name} {_brief(call.arguments)}", style="magenta"))
        if observation is not None:
            _print_observation(observation, console)


def _print_observation(observation: Observation, console: Console) -> None:
    if observation.diff:
        text = observation.diff.decode("utf-8", "backslashreplace")
        console.print(Syntax(text, "diff", theme="ansi_dark"))
    left_out = f", {observation.dropped:,} characters left out" if observation.dropped else ""
    words = f"observation ({observation.kind}{left_out}): {observation.text}"
    console.print(Text(words, style="cyan"))
    _print_outcomes(dict(observation.outcomes), dict(observation.messages), console)


def _brief(arguments: Mapping[str, object]) -> str:
    """The arguments of a call in one short line."""
    text = json.dumps(dict(arguments), ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _print_outcomes(outcomes: dict[str, Any], messages: dict[str, str], console: Console) -> None:
    if not outcomes:
        return
    table = Table(show_header=False, box=None, padding=(0, 2))
    for test, outcome in outcomes.items():
        style = _STYLES.get(outcome, "yellow")
        table.add_row(Text(outcome, style=style), Text(test), Text(messages.get(test, "")))
    console.print(table)


def _print_reward(reward: Reward, console: Console) -> None:
    verdict = reward.verdict
    total = "unknown" if reward.total is None else f"{reward.total:.3f}"
    shared = ", shared with an identical patch" if reward.shared else ""
    console.print(Rule(f"reward {total}: {verdict.status} by {verdict.evidence}{shared}"))
    console.print(score_table(reward))
    for score in reward.scores:
        _print_score(score, console)
    if verdict.detail:
        console.print(Text(verdict.detail, style="yellow"))
    for line in remarks(verdict):
        console.print(Text(line, style="yellow"))
    _print_outcomes(dict(verdict.outcomes), dict(verdict.messages), console)


def _print_score(score: Score, console: Console) -> None:
    """What it rests on, and the first places at fault."""
    if score.detail and score.status == "measured":
        console.print(Text(plain(f"{score.name}: {score.detail}"), style="yellow"))
    if score.evidence:
        console.print(Text(plain(f"{score.name}: {_brief(score.evidence)}"), style="dim"))
    for fault in score.faults[:_FAULTS]:
        console.print(Text(plain(f"  {place(fault)}{fault.message}"), style="red"))
    if len(score.faults) > _FAULTS:
        console.print(Text(f"  and {len(score.faults) - _FAULTS} more", style="red"))
