"""Things that ought not to be: in the ledger, in the metrics, and told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .group import Group
from .ledger import Ledger
from .progress import Progress
from .reward_watch import RewardAlarm
from .telemetry import signals


class Alarms:
    """Where a run's parts raise their alarms."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger = ledger
        self._progress = progress

    def ring(self, kind: str, words: str, examples: Sequence[str] = ()) -> None:
        """`examples` are ids of rollouts or groups to look at."""
        signals.alarm(kind)
        self._ledger.event("alarm", alarm=kind, words=words, examples=list(examples))
        see = f"; see {', '.join(examples)}" if examples else ""
        self._progress.listener(f"alarm ({kind}): {words}{see}")

    def rewards(self, alarms: Sequence[RewardAlarm]) -> None:
        """What the watch over rewards found."""
        for alarm in alarms:
            self.ring(alarm.kind, alarm.words, alarm.examples)

    def stalled(self, seconds: float, text: str) -> None:
        """Nothing has moved for `seconds`; `text` says what waits for what."""
        self._ledger.event("stalled", seconds=seconds, report=text)
        self._progress.listener(f"nothing has moved for {seconds:.0f} s: {text.splitlines()[0]}")

    def compare(
        self, step: int, report: Mapping[str, object], groups: Sequence[Group], limit: float
    ) -> None:
        """Sampler and learner must agree on the tokens trained on, or they hold other weights.

        `limit` is in nats a token, mean over the tokens.
        """
        mean = report["mismatch_mean"]
        if isinstance(mean, float) and not mean <= limit:
            oldest = max(step - group.oldest_version for group in groups)
            cause = "they hold different weights"
            if oldest:
                cause += f", or the steps are too large for a staleness of {oldest}"
            words = f"step {step + 1}: sampler and learner differ by {mean:.3f} nats a token"
            self.ring("mismatch", f"{words} (learner.mismatch_limit is {limit:g}): {cause}")
