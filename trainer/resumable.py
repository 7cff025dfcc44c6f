"""Which settings may change when a run goes on, and why the others may not.

What says how far, how fast and where is free. What says what is learned from what is not: rollouts,
groups and the optimizer's state on record were made with the old value, and would be mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .config import RunConfig, changed_keys
from .errors import ConfigError

ACCEPTED: Mapping[str, str] = MappingProxyType(
    {
        "run.steps": "how far it goes",
        "run.folder": "of no effect: the run is where it is",
        "run.name": "of no effect: the run has its name",
        "run.stall_limit": "when it tells",
        "run.stop_limit": "how long its end may take",
        "tasks.quarantine": "when a task is left out",
        "sandbox.": "this machine's sandboxes",
        "scoring.": "this machine's reward workers",
        "policy.": "who samples: the weights are published to it anew",
        "rollout.in_flight": "how many at once",
        "rollout.retries": "when it gives a rollout up",
        "group.wait_limit": "when it gives up",
        "failures.": "when it gives up",
        "sampler.slots": "how many turns at once",
        "sampler.prefix_cache_mib": "memory against time",
        "sampler.compilation_cache": "where compiled programs are kept",
        "learner.mesh": "the checkpoint is laid out anew over these devices",
        "learner.keep": "memory against time: the numbers are the same",
        "learner.mismatch_limit": "when it tells",
        "learner.skip_budget": "when it gives up",
        "evaluation.every": "when it is measured",
        "checkpoint.": "what is kept",
        "profile.": "what is recorded of its work",
        "telemetry.": "what is told of it, and where",
        "ray.": "where it runs",
    }
)
"""Keys, or beginnings of keys that end in a dot, and why a change is taken."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "run.seed": "every random stream follows from it",
        "model.": "the checkpoint's weights are of the old one; where it moved, put a link",
        "tasks.": "groups on record are of the old ones; where a file moved, put a link",
        "environment.": "rollouts on record acted in the old one",
        "agent.": "rollouts on record acted by the old one",
        "rollout.": "rollouts on record had the old limit",
        "sampler.": "rollouts on record were sampled with the old value",
        "group.": "groups on record were made with the old value",
        "reward.": "rewards on record were made with the old value",
        "learner.": "the optimizer's state was made with the old value",
        "evaluation.": "the evaluation before would not compare with the one after",
        "": "what is on record was made with the old value",
    }
)
"""The same for what is refused; the first that fits. Whatever is not accepted is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that is to change."""

    key: str
    old: object
    new: object
    accepted: bool
    why: str

    def line(self) -> str:
        """For people."""
        verdict = "accepted" if self.accepted else "refused"
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}  {verdict}: {self.why}"


def judged(old: RunConfig, new: RunConfig) -> tuple[Change, ...]:
    """Every setting in which `new` differs from `old`, by key."""
    return tuple(
        _judge(key, before, after)
        for key, (before, after) in sorted(changed_keys(old, new).items())
    )


def check_accepted(changes: Sequence[Change]) -> None:
    """ConfigError, naming each, when some of them are refused."""
    refused = [change for change in changes if not change.accepted]
    if refused:
        words = "; ".join(
            f"{each.key} can't change from {_shown(each.old)} to {_shown(each.new)} in a run that "
            f"goes on: {each.why}"
            for each in refused
        )
        raise ConfigError(f"{words}. Leave it as it was, or start a new run")


def _judge(key: str, before: object, after: object) -> Change:
    why = next((why for name, why in ACCEPTED.items() if _is(key, name)), None)
    reason = why or next(why for name, why in REFUSED.items() if _is(key, name))
    return Change(key=key, old=before, new=after, accepted=why is not None, why=reason)


def _is(key: str, name: str) -> bool:
    """`learner.mesh` is meant by itself, by `learner.mesh` as a section, and by `learner.`."""
    return key == name or key.startswith(name if name.endswith(".") or not name else f"{name}.")


def _shown(value: object) -> str:
    return "unset" if value is None else repr(value)
