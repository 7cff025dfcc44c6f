"""Looks at a run from outside of it, again and again: by its ledger and its sign of life alone.

look -> Sight -> news (lines that were not there before) | document | picture
  ^                                                                |
  +------------------- until the run has ended <-------------------+
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchgym.trainer.agent_evaluation.folder import is_evaluation, open_evaluation
from patchgym.trainer.heartbeat import pulse, state_now
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.now import last_seen
from patchgym.trainer.progress import KEPT, Progress
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.sft import is_supervised, read_summary

STARTING = 60.0
"""Seconds that a folder may be without a ledger before it counts as never begun."""
_LONG = 30.0  # seconds between two lines about the same wait
_ON = ("running", "silent")
"""How the words of a state begin while somebody may still be at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A run at one moment."""

    kind: str
    """`training`, `sft` or `evaluation`."""
    state: str
    ended: bool
    now: Mapping[str, Any]
    """A `Progress.snapshot`."""
    steps: Sequence[Mapping[str, Any]] = ()
    """Metrics of the last steps."""
    alarms: Sequence[str] = ()
    """In the order in which they came."""
    age: float = 0.0
    """Seconds since `now` was taken."""

    @property
    def history(self) -> list[Mapping[str, Any]]:
        """The last steps, as the picture takes them."""
        return [{"reward": step.get("reward"), "pass_rate": step.get("pass_rate")} for step in
                self.steps]  # fmt: skip

    def document(self, run: str) -> dict[str, Any]:
        """For programs."""
        last = dict(self.steps[-1]) if self.steps else None
        return {
            "time": round(time.time(), 3),
            "run": run,
            "kind": self.kind,
            "state": self.state,
            "ended": self.ended,
            "now": dict(self.now),
            "last_step": last,
            "alarms": list(self.alarms),
        }


def look(folder: RunFolder) -> Sight:
    """The run as it is. RunError when its ledger can't be read."""
    if is_supervised(folder):
        return _supervised(folder)
    kind = "evaluation" if is_evaluation(folder) else "training"
    if not folder.ledger.is_file():
        return _without_ledger(folder, kind)
    with LedgerReader(folder.ledger) as reader:
        state = state_now(folder, reader.meta("state", "unknown"))
        seen, steps = last_seen(reader), _steps(reader)
        now = seen or _plain(folder, state, len(steps) and steps[-1]["step"] + 1)
        if kind == "evaluation":
            (done,) = reader.rows("SELECT COUNT(*) FROM rollouts")[0]
            now = {**now, "done": done, "total": _planned(folder)}
        if steps:
            now = {**now, "step": steps[-1]["step"] + 1}
        if not state.startswith("running"):
            now = {**now, "phase": state, "waits_for": "", "stages": {}}
        return Sight(
            kind=kind,
            state=state,
            ended=not state.startswith(_ON),
            now=now,
            steps=steps,
            alarms=_alarms(reader),
            age=time.time() - seen["at"] if seen else 0.0,
        )


def _planned(folder: RunFolder) -> int:
    """Rollouts that an evaluation is to have."""
    evaluation = open_evaluation(folder)
    return len(evaluation.task_ids) * evaluation.samples


def _steps(reader: LedgerReader) -> list[Mapping[str, Any]]:
    rows = reader.rows("SELECT step, metrics FROM steps ORDER BY step DESC LIMIT ?", (KEPT,))
    return [{**json.loads(row["metrics"]), "step": row["step"]} for row in reversed(rows)]


def _alarms(reader: LedgerReader) -> list[str]:
    sql = "SELECT kind, detail FROM events WHERE kind IN ('alarm', 'stalled') ORDER BY time"
    found: list[str] = []
    for row in reader.rows(sql):
        detail = json.loads(row["detail"])
        if row["kind"] == "alarm":
            found.append(f"alarm ({detail['alarm']}): {detail['words']}")
        else:
            first = detail["report"].splitlines()[0]
            found.append(f"nothing has moved for {detail['seconds']:.0f} s: {first}")
    return found


def _plain(folder: RunFolder, phase: str, step: int = 0, steps: int = 0) -> dict[str, Any]:
    """A snapshot of a run that left none of itself."""
    return Progress(title=folder.path.name, phase=phase, step=step, steps=steps).snapshot()


def _without_ledger(folder: RunFolder, kind: str) -> Sight:
    made = folder.config.stat().st_mtime
    begins = pulse(folder) is not None or time.time() - made < STARTING
    state = "starting" if begins else "never began"
    return Sight(kind=kind, state=state, ended=not begins, now=_plain(folder, state))


def _supervised(folder: RunFolder) -> Sight:
    summary = read_summary(folder)
    state, done, steps = summary["state"], summary["steps"], summary["planned_steps"]
    now = _plain(folder, "training" if state == "running" else state, done, steps)
    history = [{**row, "reward": None} for row in summary["history"][-KEPT:]]
    return Sight(kind="sft", state=state, ended=state != "running", now=now, steps=history)


@dataclass(slots=True)
class News:
    """What is new since the last look, as lines."""

    _phase: str = ""
    _step: int | None = None
    _alarms: int = 0
    _told: float = field(default=float("-inf"))

    def of(self, sight: Sight) -> Iterator[str]:
        """Lines, in the order of what they tell of."""
        first = self._step is None
        if sight.now["phase"] != self._phase:
            self._phase = sight.now["phase"]
            yield self._phase
        for step in sight.steps[-1:] if first else sight.steps:
            if self._step is None or step["step"] > self._step:
                self._step = step["step"]
                yield _step_words(step, sight)
        self._step = -1 if self._step is None else self._step
        alarms = sight.alarms[-3:] if first else sight.alarms[self._alarms :]
        self._alarms = len(sight.alarms)
        yield from alarms
        waits = sight.now["waits_for"]
        if waits and time.monotonic() - self._told >= _LONG:
            self._told = time.monotonic()
            yield str(waits)


def _step_words(step: Mapping[str, Any], sight: Sight) -> str:
    words = [f"step {step['step'] + 1}"]
    if step.get("reward") is not None:
        words.append(f"reward {step['reward']:.3f}, pass rate {step['pass_rate']:.0%}")
    elif sight.kind == "sft":
        words.append(f"loss {step['loss']:.4f}")
    else:
        words.append("no rollout since the last")
    account = sight.now["account"] if step is sight.steps[-1] else {}
    if account:
        words.append(f"learner idle {account['idle_share']:.0%}")
        words.append(f"sampler idle {account['sampler']['idle_share']:.0%}")
    return f"{words[0]}: {', '.join(words[1:])}"
