"""What the run's page says, in words and shares, from what was read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .now import Now
from .runs import OpenRun
from .series import Series
from .words import EMPTY, count, duration, number, percent, short_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """A number with its name."""

    word: str
    value: str
    more: str = ""
    tone: str = ""


def stats(run: OpenRun, now: Now, series: Series) -> list[Stat]:
    """The strip on top."""
    if run.kind == "supervised":
        return _supervised(run, series)
    if run.kind == "evaluation":
        return [*_rollouts(now), _time(run)]
    return [
        _steps(run, series),
        _trend("Reward", "reward", series, 3),
        _trend("Pass rate", "pass_rate", series),
        _heldout(now),
        _idle(run, series),
        _queue(run, now),
        _staleness(series),
        *_rollouts(now),
        _time(run),
    ]


def _steps(run: OpenRun, series: Series) -> Stat:
    planned = _setting(run, "run", "steps")
    times = [value for value in series.columns.get("seconds", [])[-10:] if value is not None]
    more = ""
    if times:
        each = sum(times) / len(times)
        more = f"{duration(each)} a step"
        if run.state == "running" and isinstance(planned, int) and planned > series.length:
            more += f", {duration(each * (planned - series.length))} to go"
    of = f" / {count(planned)}" if isinstance(planned, int) else ""
    return Stat(word="Step", value=f"{count(series.length)}{of}", more=more)


def _trend(word: str, name: str, series: Series, digits: int = 0) -> Stat:
    known = [value for value in series.columns.get(name, ()) if value is not None]
    if not known:
        return Stat(word=word, value=EMPTY)
    size = max(1, min(10, len(known) // 2))

    def told(value: float) -> str:
        return number(value, digits) if digits else percent(value)

    if len(known) < 2:
        return Stat(word=word, value=told(known[-1]))
    first, last = sum(known[:size]) / size, sum(known[-size:]) / size
    which = "step" if size == 1 else f"{size} steps"
    return Stat(word=word, value=told(last), more=f"last {which}; first {told(first)}")


def _heldout(now: Now) -> Stat:
    if not now.heldout:
        return Stat(word="Held out", value=EMPTY)
    last = now.heldout[-1]
    before = f"{percent(now.heldout[0].pass_rate)} \N{RIGHTWARDS ARROW} " if now.heldout[1:] else ""
    more = f"95% {percent(last.low)} to {percent(last.high)}, {last.name}"
    return Stat(word="Held out", value=f"{before}{percent(last.pass_rate)}", more=more)


def _idle(run: OpenRun, series: Series) -> Stat:
    account: Mapping[str, Any] = run.reader.meta("idle", {})
    share = account.get("idle_share")
    if share is None:
        return Stat(word="Learner idle", value=EMPTY)
    reasons = account.get("idle_reasons", {})
    why = max(reasons, key=reasons.__getitem__, default="")
    more = f"{why} {percent(reasons[why])}" if why else ""
    tone = "bad" if share > 0.5 else "warn" if share > 0.25 else ""
    return Stat(word="Learner idle", value=percent(share), more=more, tone=tone)


def _queue(run: OpenRun, now: Now) -> Stat:
    per_step, staleness = (_setting(run, "group", name) for name in ("per_step", "max_staleness"))
    of = ""
    if isinstance(per_step, int) and isinstance(staleness, int):
        of = f" / {per_step * (1 + staleness)}"
    pending = now.states.get("pending", 0)
    return Stat(
        word="Queue",
        value=f"{now.states.get('ready', 0)}{of}",
        more=f"{count(pending)} groups open",
    )


def _staleness(series: Series) -> Stat:
    total = series.staleness.total()
    if not total:
        return Stat(word="Staleness", value=EMPTY)
    mean = sum(age * groups for age, groups in series.staleness.items()) / total
    return Stat(word="Staleness", value=number(mean), more=f"at most {max(series.staleness)}")


def _rollouts(now: Now) -> list[Stat]:
    rate = "" if now.per_minute is None else f"{number(now.per_minute, 1)} a minute lately"
    sampled, resolved = sum(s.sampled for s in now.spent), sum(s.resolved for s in now.spent)
    each = f"{short_count(sampled / resolved)} a resolved rollout" if resolved else ""
    return [
        Stat(word="Rollouts", value=count(now.rollouts), more=rate),
        Stat(word="Tokens sampled", value=short_count(sampled), more=each),
    ]


def _time(run: OpenRun) -> Stat:
    seconds = run.reader.meta("seconds", 0.0)
    if run.state == "running":
        began = run.reader.rows("SELECT MAX(time) AS time FROM events WHERE kind = 'began'")
        if began[0]["time"]:
            return Stat(
                word="Time", value=duration(seconds + time.time() - began[0]["time"]), more="so far"
            )
    return Stat(word="Time", value=duration(seconds) if seconds else EMPTY, more="wall clock")


def _supervised(run: OpenRun, series: Series) -> list[Stat]:
    planned = run.reader.meta("sft", {}).get("steps")
    measures = []
    if run.has_table("sft_measures"):
        measures = run.reader.rows("SELECT * FROM sft_measures ORDER BY step")
    of = f" / {count(planned)}" if planned else ""
    found = [
        Stat(word="Step", value=f"{count(series.length)}{of}"),
        Stat(word="Loss", value=number(series.newest("loss"), 3)),
        Stat(word="Gradient norm", value=number(series.newest("grad_norm"), 3)),
        _time(run),
    ]
    if measures:
        first, last = measures[0]["loss"], measures[-1]["loss"]
        value = f"{number(first, 3)} \N{RIGHTWARDS ARROW} {number(last, 3)}"
        found.insert(2, Stat(word="Held-out loss", value=value))
    return found


def costs(now: Now, series: Series) -> list[tuple[str, str]]:
    """What tokens and seconds bought."""
    sampled, resolved = sum(s.sampled for s in now.spent), sum(s.resolved for s in now.spent)
    seconds = sum(s.seconds for s in now.spent)
    contexts = [s.context for s in now.spent if s.context is not None]
    found = []
    if resolved:
        found.append(("tokens sampled for a resolved rollout", short_count(sampled / resolved)))
        found.append(("rollout time for a resolved rollout", duration(seconds / resolved)))
    if contexts and sampled:
        found.append(("tokens read for each sampled", number(sum(contexts) / sampled, 1)))
    found += [
        (f"tokens {word} a second, last steps", short_count(rate))
        for word, name in (("sampled", "sampled_tokens"), ("trained", "loss_tokens"))
        if (rate := _per_second(series, name)) is not None
    ]
    return found


def _per_second(series: Series, name: str, steps: int = 10) -> float | None:
    """Over the last steps that say how long they took."""
    pairs = zip(series.columns.get(name, ()), series.columns.get("seconds", ()), strict=False)
    known = [(value, taken) for value, taken in pairs if value is not None and taken][-steps:]
    total = sum(taken for _, taken in known)
    return sum(value for value, _ in known) / total if total else None


def _setting(run: OpenRun, section: str, name: str) -> Any:
    """Of run.toml; None when it is not there."""
    found = run.settings.get(section)
    return found.get(name) if isinstance(found, dict) else None
