"""What can go wrong between a rollout and the model that answers it; every message is one line.

PolicyError
├── PolicyUnavailable   nobody answers, or stopped in the middle: the same turn may go elsewhere
│   └── PolicyTimeout   the answer did not come before the deadline; the message names the culprit
├── PolicyRefused       the server refuses this request, and would refuse it again
│   └── ContextTooLong  the context and the tokens asked for don't fit the model's window
├── PolicyAnswerError   the answer is not what the protocol says: garbage, or logprobs missing
├── PolicyClosed        the policy is not open, or was closed while the turn waited
└── WeightPushError     new weights were not taken
"""

from __future__ import annotations

from patchgym.sandbox.errors import PatchgymError


class PolicyError(PatchgymError):
    """A policy could not answer; `str()` is one line for a person."""


class PolicyUnavailable(PolicyError):
    """The server is down, overloaded, or broke off. Nothing was delivered: the turn may be retried.

    `wait` is how long the server asked to be left alone, in seconds, where it said so.
    """

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class PolicyTimeout(PolicyUnavailable):
    """No answer before the deadline."""


class PolicyRefused(PolicyError, ValueError):
    """The request itself was refused; sending it again changes nothing."""


class ContextTooLong(PolicyRefused):
    """The context and `max_new_tokens` are longer than the model's window. Nothing is ever cut."""


class PolicyAnswerError(PolicyError):
    """The server answered, and the answer breaks the protocol. Nothing of it is used."""


class PolicyClosed(PolicyError):
    """The policy is not open."""


class WeightPushError(PolicyError):
    """The server did not take new weights; the message names the stage and the reason."""


def one_line(text: object, limit: int = 300) -> str:
    """`text` on one line of at most `limit` characters, for an error's message."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
