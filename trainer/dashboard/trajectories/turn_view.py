"""One turn for a page: what was written, what was called, what came back and what was cut of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from markupsafe import Markup

from patchgym.agent import Observation, ToolCall, Turn
from patchgym.trainer.dashboard.inert import inert

from .diff_lines import DiffView, diff_view
from .excerpt import Excerpt, excerpt

_SHORT = 120  # characters of an argument that fits a line
_WRONG = ("tool_error", "format_error", "patch_refused", "timeout")
_DIFF_LINES = 200  # of a working tree, in a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentView:
    """An argument of a call."""

    name: Markup
    value: Excerpt
    block: bool
    """It has lines of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """A use of a tool."""

    name: Markup
    arguments: tuple[ArgumentView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationView:
    """What came back."""

    place: int
    """Among the turn's, from 0."""
    kind: str
    tool: Markup
    text: Excerpt
    dropped: int
    """Characters that the policy did not get to read."""
    seconds: float
    timed_out: bool
    done: bool
    outcomes: tuple[tuple[str, int], ...]
    """How many tests came out how."""
    diff: DiffView | None
    """The working tree after the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """A call and its observation; either may be missing."""

    call: CallView | None
    observation: ObservationView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A turn."""

    number: int
    """From 1."""
    text: Excerpt
    exchanges: tuple[ExchangeView, ...]
    context: int
    """Ids that were read."""
    sampled: int
    versions: str
    """Of the policy."""
    finish: str
    mean_logprob: float | None
    """Nats."""
    least_logprob: float | None
    sample_seconds: float
    tool_seconds: float
    restarts: bool
    replayed: bool
    """It was sampled in an earlier attempt."""

    @property
    def gist(self) -> Markup:
        """The turn in a word or two, for a table of contents."""
        seen = [each.observation for each in self.exchanges if each.observation is not None]
        if not seen:
            return Markup("no answer")
        first = seen[0]
        named = first.tool if first.kind == "output" and first.tool else None
        more = Markup(f" +{len(seen) - 1}") if len(seen) > 1 else Markup("")
        return (named or Markup(first.kind.replace("_", " "))) + more

    @property
    def tone(self) -> str:
        """good where its tests passed, bad where some did not or something went wrong, or empty."""
        seen = [each.observation for each in self.exchanges if each.observation is not None]
        outcomes = {word for each in seen for word, _ in each.outcomes}
        if outcomes:
            return "good" if outcomes <= {"passed", "skipped"} else "bad"
        return "bad" if any(each.kind in _WRONG or each.timed_out for each in seen) else ""


def turn_view(number: int, turn: Turn, *, replayed: bool) -> TurnView:
    """`turn` as the `number`th of its trajectory."""
    completion = turn.completion
    logprobs = completion.logprobs
    versions = sorted(set(completion.versions()) or {completion.policy_version})
    return TurnView(
        number=number,
        text=excerpt(turn.text.rstrip("\n")),
        exchanges=tuple(_exchanges(turn)),
        context=len(turn.context),
        sampled=len(completion.tokens),
        versions=_between(versions[0], versions[-1]),
        finish=completion.finish,
        mean_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        least_logprob=min(logprobs, default=None),
        sample_seconds=turn.sample_seconds,
        tool_seconds=turn.tool_seconds,
        restarts=turn.restarts,
        replayed=replayed,
    )


def _between(oldest: int, newest: int) -> str:
    if oldest < 0:
        return "none"  # it answered in text
    return str(oldest) if oldest == newest else f"{oldest}\N{EN DASH}{newest}"


def _exchanges(turn: Turn) -> Iterator[ExchangeView]:
    pairs = zip_longest(turn.calls, turn.observations)
    before = b""
    for place, (call, observation) in enumerate(pairs):
        shown = None
        if observation is not None:
            # A call that changed nothing has the diff of the one before.
            news = observation.diff if observation.diff != before else b""
            before = observation.diff
            shown = _observation(place, observation, news)
        yield ExchangeView(call=None if call is None else _call(call), observation=shown)


def _call(call: ToolCall) -> CallView:
    arguments = (_argument(name, value) for name, value in _items(call.arguments))
    return CallView(name=inert(call.name[:200]), arguments=tuple(arguments))


def _items(arguments: Mapping[str, object]) -> list[tuple[str, object]]:
    return list(arguments.items())[:50]


def _argument(name: str, value: object) -> ArgumentView:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return ArgumentView(
        name=inert(name[:200]),
        value=excerpt(text.rstrip("\n"), head=6_000, tail=2_000, lines=120, last_lines=40),
        block="\n" in text.rstrip("\n") or len(text) > _SHORT,
    )


def _observation(place: int, observation: Observation, diff: bytes) -> ObservationView:
    counts: dict[str, int] = {}
    for outcome in observation.outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    return ObservationView(
        place=place,
        kind=observation.kind,
        tool=inert(observation.tool[:200]),
        text=excerpt(observation.text.rstrip("\n")),
        dropped=observation.dropped,
        seconds=observation.seconds,
        timed_out=observation.timed_out,
        done=observation.done,
        outcomes=tuple(sorted(counts.items(), key=lambda item: -item[1])),
        diff=diff_view(diff, most=_DIFF_LINES) if diff else None,
    )
