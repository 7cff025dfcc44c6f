"""What an evaluation shows while it goes: a line a verdict, and on a terminal a bar below them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rich.console import Console

from patchgym.rewards import Verdict
from patchgym.rewards.evaluation import Attempt

from .work_bar import WorkBar

_STYLES = {"resolved": "green", "unresolved": "red", "unknown": "yellow"}


class EvaluationView(WorkBar):
    """The watcher of an evaluation.

    `check` is asked after each failure of the machine, and raises when going on is of no use.
    """

    def __init__(self, console: Console, check: Callable[[], Awaitable[object]] | None = None):
        super().__init__(console, "starting")
        self.check = check

    def planned(self, total: int, taken_over: int) -> None:
        """The work is known."""
        self.begin(total, taken_over)
        self.doing = "evaluating"
        if taken_over:
            self.say(f"{taken_over} of {total} verdicts are there already")

    def started(self, attempt: Attempt) -> None:
        """One more is under way."""
        self.start(attempt.key, attempt.task.id)

    async def finished(self, attempt: Attempt, verdict: Verdict) -> None:
        """One more is kept."""
        self._line(attempt, verdict, self.end(attempt.key))
        if verdict.evidence == "infra" and self.check is not None:
            await self.check()

    def _line(self, attempt: Attempt, verdict: Verdict, seconds: float) -> None:
        self.counts[verdict.status] += 1
        text = self.place()
        text.append(f"{verdict.status:<10}", style=_STYLES[verdict.status])
        text.append(f" {seconds:7.1f} s  {attempt.task.id}")
        if attempt.repeat:
            text.append(f" (repeat {attempt.repeat + 1})")
        if note := _note(verdict):
            text.append(f"  {note}", style="dim")
        self.say(text)


def _note(verdict: Verdict) -> str:
    """Why, in a few words, where the status alone does not say it."""
    parts: list[str] = []
    if verdict.evidence not in ("report", "junit"):
        parts.append(verdict.evidence)
    if verdict.detail:
        parts.append(" ".join(verdict.detail.split())[:160])
    disqualifying = [found.rule for found in verdict.tampering if found.disqualifies]
    parts += sorted(set(disqualifying))
    if verdict.flaky and verdict.evidence != "flaky":
        parts.append(f"{len(verdict.flaky)} flaky")
    return "; ".join(parts)
