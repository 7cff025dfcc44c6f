"""What goes between a driver and a host: numbered frames, each with a payload pickled by itself.

A payload that can't be pickled, or not be read at the other end, then costs its own call and not
the batch that it would have travelled in. Both ends run the same version of patchgym: `begin` sees
to that before the first frame.
"""

from __future__ import annotations

import pickle
from typing import Any, Literal, NamedTuple

from patchgym.sandbox.errors import (
    CheckoutError,
    EngineUnavailable,
    ImageError,
    LeaseTimeout,
    PatchgymError,
    SandboxError,
    SandboxLost,
    SandboxUnavailable,
    SandboxUsageError,
)

Kind = Literal["open", "item", "cancel", "end", "error"]


class Frame(NamedTuple):
    """One message. The side that opened a talk gave it its number."""

    kind: Kind
    opener: bool
    """Sent by the side that opened the talk."""
    number: int
    payload: bytes


ERRORS: dict[str, type[Exception]] = {
    each.__name__: each
    for each in (
        CheckoutError,
        EngineUnavailable,
        ImageError,
        LeaseTimeout,
        SandboxLost,
        SandboxUnavailable,
        SandboxUsageError,
    )
}
"""Errors that come through as what they are."""


def carry(*kinds: type[Exception]) -> None:
    """Have errors of these kinds come through, too; call it at both ends. Each is made of one
    message."""
    ERRORS.update({kind.__name__: kind for kind in kinds})


class RemoteFailure(PatchgymError):
    """Something at the other end raised an error that is not one of patchgym's own kinds."""


def encode(value: object) -> bytes:
    """`value` for a frame. Raises what pickling raises."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def decode(payload: bytes) -> Any:
    """What `encode` was given."""
    return pickle.loads(payload)


def encode_error(error: BaseException) -> bytes:
    """An error for a frame: the name of its nearest known kind, and its words."""
    for kind in type(error).__mro__:
        if kind in ERRORS.values():
            return encode((kind.__name__, str(error)))
    if isinstance(error, SandboxError):
        return encode((SandboxUnavailable.__name__, str(error)))
    if isinstance(error, PatchgymError):
        return encode(("", str(error)))
    return encode(("", f"{type(error).__name__}: {error}"))


def decode_error(payload: bytes, where: str) -> Exception:
    """The error that `encode_error` was given; one of another kind is told with `where` it was."""
    name, words = decode(payload)
    if name in ERRORS:
        return ERRORS[name](words)
    return RemoteFailure(f"{where}: {words}")
