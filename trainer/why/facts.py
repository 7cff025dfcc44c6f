"""What the folder of a run says of its waits, as numbers."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from patchgym.trainer.config import (
    GroupSection,
    RolloutSection,
    SandboxSection,
    ScoringSection,
)
from patchgym.trainer.heartbeat import state_now
from patchgym.trainer.idle import GENERATING, shares_of
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.now import seen_now
from patchgym.trainer.run_folder import RunFolder

from .latencies import Latencies, read_latencies
from .window import Window, last_steps, learner_seconds, total

TRAINING = "training"
WORK = frozenset({TRAINING, "publishing", "checkpointing", "bookkeeping", "other work"})
"""What the learner does by itself; all else of its time is a wait for groups."""
_DEFAULTS: Mapping[str, GroupSection | RolloutSection | SandboxSection | ScoringSection] = {
    "group": GroupSection(),
    "rollout": RolloutSection(),
    "sandbox": SandboxSection(),
    "scoring": ScoringSection(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A place on the way to the batches of the window."""

    stage: str
    image: str
    """Empty where it is not known."""
    seconds: float
    task: str
    """That took longest there."""
    rollout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that `patchgym runs why` says, before it is said."""

    run: str
    state: str
    """`running`, `finished`, or since when nobody is there."""
    ended: str
    """Why it ended, in words; empty while it runs."""
    planned: int
    """Steps that the run is to have; 0 where that is not known."""
    done: int
    """Steps on record."""
    window: Window
    learner: dict[str, float]
    """Shares of the learner's time, the largest first; they sum to 1."""
    sampler: dict[str, float]
    """Shares of the sampler's time; empty where an older version kept none."""
    seconds: float
    """Wall seconds of the window."""
    parts: Sequence[Part]
    """The way to the batches, by stage and image, the longest first."""
    behind: dict[str, float]
    """Shares of the learner's time in which the awaited rollout had no slot or no scorer yet."""
    sampling: float
    """Mean number of turns under way."""
    latencies: Latencies
    settings: Mapping[str, Mapping[str, Any]]
    """Sections of run.toml that advice is about."""
    waits_for: str
    """Whom the learner waits for right now; empty when that is not known."""
    doing: str
    """What the run does right now, in words; empty when that is not known."""

    @property
    def waiting(self) -> dict[str, float]:
        """Shares of the learner's time that it waited for groups, by reason."""
        return {why: share for why, share in self.learner.items() if why not in WORK}

    @property
    def idle_share(self) -> float:
        """Share of the learner's time without an update under way; 0 without a step."""
        return 1.0 - self.learner.get(TRAINING, 0.0) if self.learner else 0.0

    @property
    def sampler_waiting(self) -> dict[str, float]:
        """Shares of the sampler's time with no turn under way, by reason."""
        return {why: share for why, share in self.sampler.items() if why != GENERATING}


def read_facts(folder: RunFolder, *, last: int = 20, now: float | None = None) -> Facts:
    """Of the last steps of a run. RunError when its ledger can't be read."""
    now = time.time() if now is None else now
    with LedgerReader(folder.ledger) as reader:
        window = last_steps(reader, last)
        (done,) = reader.rows("SELECT COUNT(*) FROM steps")[0]
        state = state_now(folder, reader.meta("state", "unknown"), now)
        seconds = learner_seconds(window)
        settings = _settings(folder)
        fresh = (seen_now(reader, now) if state == "running" else None) or {}
        return Facts(
            run=folder.path.name,
            state=state,
            ended=_ended(reader, state),
            planned=int(settings["run"].get("steps", 0)),
            done=done,
            window=window,
            learner=shares_of(seconds),
            sampler=shares_of(total(account["sampler"] for account in window.accounts)),
            seconds=sum(seconds.values()),
            parts=_parts(window, reader.meta("images", {})),
            behind=_behind(window),
            sampling=_sampling(window),
            latencies=read_latencies(reader, window),
            settings=settings,
            waits_for=str(fresh.get("waits_for", "")),
            doing=str(fresh.get("phase", "")),
        )


def _settings(folder: RunFolder) -> dict[str, Mapping[str, Any]]:
    """Sections of run.toml over the defaults; keys of other versions do no harm."""
    try:
        written = tomllib.loads(folder.config.read_text())
    except (OSError, ValueError):
        written = {}
    found: dict[str, Mapping[str, Any]] = {"run": _section(written, "run")}
    for name, defaults in _DEFAULTS.items():
        found[name] = {**asdict(defaults), **_section(written, name)}
    return found


def _section(written: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = written.get(name, {})
    return section if isinstance(section, dict) else {}


def _ended(reader: LedgerReader, state: str) -> str:
    """Why it ended, where it is on record and does not go on."""
    end = reader.meta("end")
    if not isinstance(end, dict) or state == "running" or end.get("how") == "finished":
        return ""
    return f"{end.get('stage', '')}: {end.get('kind', '')}: {end.get('words', '')}".strip(": ")


def _parts(window: Window, image_of: Mapping[str, str]) -> list[Part]:
    sums: dict[tuple[str, str], float] = {}
    worst: dict[tuple[str, str], Mapping[str, Any]] = {}
    for account in window.accounts:
        for stretch in account["path"]:
            key = stretch["stage"], image_of.get(stretch["task"], "")
            sums[key] = sums.get(key, 0.0) + stretch["seconds"]
            if key not in worst or stretch["seconds"] > worst[key]["seconds"]:
                worst[key] = stretch
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return [
        Part(
            stage=stage,
            image=image,
            seconds=seconds,
            task=worst[stage, image]["task"],
            rollout=worst[stage, image]["rollout"],
        )
        for (stage, image), seconds in ordered
    ]


def _behind(window: Window) -> dict[str, float]:
    seconds = sum(account["seconds"] for account in window.accounts)
    found = total(account["behind"] for account in window.accounts)
    return {what: part / seconds for what, part in found.items()} if seconds > 0 else {}


def _sampling(window: Window) -> float:
    seconds = sum(account["seconds"] for account in window.accounts)
    turns = sum(account["sampling"] * account["seconds"] for account in window.accounts)
    return turns / seconds if seconds > 0 else 0.0
