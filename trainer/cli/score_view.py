"""One patch's reward explained in the terminal: components, the lines at fault, the sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from patchgym.datasets.task import Task
from patchgym.rewards.base import Fault, Reward, Score, Verdict
from patchgym.rewards.config import RewardConfig
from patchgym.rewards.plain import plain as as_json
from patchgym.rewards.scene import Change
from patchgym.trainer.score_table import place, plain, score_table, sum_of
from patchgym.trainer.verdict_words import remarks

_FAULTS = 10  # of a component
_LINE = 2000  # characters of a source line that are looked at
_STYLES = {"resolved": "green", "unresolved": "red", "unknown": "yellow"}


def print_score(
    task: Task, change: Change, config: RewardConfig, reward: Reward, console: Console
) -> None:
    """Everything about the reward of one patch, for a person."""
    head = Text.assemble(
        (plain(task.id), "bold"), "  ", (reward.verdict.status, _STYLES[reward.verdict.status]),
        f" by {reward.verdict.evidence}", "  reward ", (_total(reward), "bold"),
    )  # fmt: skip
    _say(console, head)
    _say(console, Text(change_words(change), style="yellow" if change.problem else "dim"))
    console.print()
    console.print(score_table(reward, told=change.problem))
    _say(console, Text(sum_of(config, reward)))
    sources = Sources(change)
    tests = {f"{outcome}: {test}" for test, outcome in reward.verdict.outcomes.items()}
    for score in reward.scores:
        faults = [fault for fault in score.faults if fault.path or fault.message not in tests]
        _print_score(score, faults, sources, console)
    _print_verdict(reward, change.problem, console)


def score_record(
    task: Task, change: Change, config: RewardConfig, reward: Reward
) -> dict[str, Any]:
    """The same as one JSON document."""
    record: dict[str, Any] = as_json(reward)
    sources = Sources(change)
    for score, row in zip(reward.scores, record["scores"], strict=True):
        row["contribution"] = score.contribution
        for fault, found in zip(score.faults, row["faults"], strict=True):
            found["source"] = sources.line(fault)
    return {
        "task": task.id,
        **record,
        "sum": sum_of(config, reward),
        "reward": as_json(config.as_mapping()),
        "change": {
            "problem": change.problem,
            "files": [
                {"path": file.path, "added": file.added, "removed": file.removed,
                 "binary": file.binary}
                for file in change.files
            ],
        },
    }  # fmt: skip


def change_words(change: Change) -> str:
    """The size of a patch, or why it has none."""
    if change.problem:
        return f"the diff does not apply: {plain(change.problem)}"
    if not change.files:
        return "the diff changes nothing"
    added, removed = (sum(getattr(file, key) for file in change.files)
                      for key in ("added", "removed"))  # fmt: skip
    binary = sum(file.binary for file in change.files)
    words = f"{len(change.files)} file{'s' * (len(change.files) > 1)}, +{added} -{removed} lines"
    return words + (f", {binary} binary" if binary else "")


class Sources:
    """The lines of the files as a diff leaves them."""

    def __init__(self, change: Change) -> None:
        self._files = {file.path: file.after for file in change.files}
        self._lines: dict[str, list[bytes]] = {}

    def line(self, fault: Fault) -> str | None:
        """The line that a fault is about, safe to print; None where there is none to show."""
        data = self._files.get(fault.path)
        if data is None or fault.line is None:
            return None
        if fault.path not in self._lines:
            self._lines[fault.path] = data.split(b"\n")
        lines = self._lines[fault.path]
        if not 0 < fault.line <= len(lines):
            return None
        return plain(lines[fault.line - 1][:_LINE].decode("utf-8", "replace").rstrip())


def _print_score(score: Score, faults: Sequence[Fault], sources: Sources, console: Console) -> None:
    detail = score.detail if score.status == "measured" else ""
    if not detail and not faults:
        return
    _head(console, plain(score.name))
    if detail:
        _indent(console, Text(plain(detail), style="yellow"))
    for fault in faults[:_FAULTS]:
        _print_fault(fault, sources.line(fault), console)
    if len(faults) > _FAULTS:
        _indent(console, Text(f"and {len(faults) - _FAULTS} more", style="dim"))


def _print_fault(fault: Fault, source: str | None, console: Console) -> None:
    where = (plain(place(fault)), "cyan")
    _indent(console, Text.assemble(where, plain(fault.message)))
    if not source or not source.strip():
        return
    gutter = f"{fault.line:>7} | "
    room, shown = max(20, console.width - len(gutter)), source.strip()
    cut = shown if cell_len(shown) <= room else f"{set_cell_size(shown, room - 3)}..."
    console.print(Text.assemble((gutter, "dim"), (cut, "red")), no_wrap=True, crop=False)


def _print_verdict(reward: Reward, problem: str, console: Console) -> None:
    verdict = reward.verdict
    told = {score.detail for score in reward.scores} | {problem}
    lines = [verdict.detail] if verdict.detail and verdict.detail not in told else []
    if reward.score("tampering") is not None:  # it has named the findings
        verdict = replace(verdict, tampering=())
    lines += remarks(verdict)
    if lines:
        _head(console, "verdict")
    for line in lines:
        _indent(console, Text(plain(line), style="yellow"))
    _print_tests(verdict, console)


def _print_tests(verdict: Verdict, console: Console) -> None:
    """Counts, and each test that did not pass with its message."""
    if not verdict.outcomes:
        return
    passed = sum(outcome == "passed" for outcome in verdict.outcomes.values())
    _head(console, f"{passed} of {len(verdict.outcomes)} tests pass ({verdict.seconds:.1f} s)")
    for line in _failures(verdict.outcomes, verdict.messages):
        _indent(console, Text(plain(line), style="red"))


def _failures(outcomes: Mapping[str, str], messages: Mapping[str, str]) -> Iterator[str]:
    failed = [test for test, outcome in outcomes.items() if outcome != "passed"]
    for test in failed[:_FAULTS]:
        message = " ".join(messages.get(test, "").split())[:300]
        yield f"{outcomes[test]:<8} {test}" + (f"  {message}" if message else "")
    if len(failed) > _FAULTS:
        yield f"and {len(failed) - _FAULTS} more"


def _total(reward: Reward) -> str:
    return "unknown" if reward.total is None else f"{reward.total:.3f}"


def _head(console: Console, words: str) -> None:
    console.print()
    _say(console, Text(words, style="bold"))


def _indent(console: Console, text: Text) -> None:
    console.print(Padding(text, (0, 0, 0, 2), expand=False), highlight=False)


def _say(console: Console, text: Text) -> None:
    console.print(text, highlight=False)
