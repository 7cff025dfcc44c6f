"""One capture: JAX's trace in a folder that gets its name once everything is in it.

    .partial-STEP-TIME/ -> plugins/profile/... (by JAX) -> capture.json -> STEP-TIME/

All calls block. Python's own frames are left out: three seconds of a busy thread took 50 MB
and seven seconds to write with them, and half a megabyte and 0.1 s without.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import patchgym

Why: TypeAlias = Literal["asked", "signal", "wait"]

ROOM = 256 << 20
"""Bytes that must be free before a capture begins."""
_PARTIAL = ".partial-"
_RECORD = "capture.json"


class CaptureError(Exception):
    """A capture could not be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a capture is made for."""

    why: Why
    """By command, by SIGUSR1, or since a wait passed its limit."""
    step: int = 0
    """Updates that the learner had made when it began."""
    policy_version: int = 0
    """Version of the sampler's weights then."""
    waited: str = ""
    """What the learner waited for, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A capture that is going on."""

    folder: Path
    """Where it is written meanwhile."""
    cause: Cause
    began: datetime.datetime
    """In UTC."""


def begin_capture(profile: Path, cause: Cause) -> Begun:
    """Start tracing into `profile`; CaptureError when it can't be."""
    import jax

    began = datetime.datetime.now(datetime.UTC)
    folder = profile / f"{_PARTIAL}{cause.step}-{began:%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < ROOM:
            raise CaptureError(
                f"{profile}: {free:,} bytes are free and a capture needs {ROOM:,}; make room"
            )
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)
    except (OSError, RuntimeError, CaptureError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise error if isinstance(error, CaptureError) else CaptureError(str(error)) from error
    return Begun(folder=folder, cause=cause, began=began)


def finish_capture(begun: Begun, *, cut_short: bool, limit: int) -> dict[str, Any]:
    """Stop tracing, and give the capture its name; its record.

    `limit` is in bytes, for all captures of the run: the oldest make room, and a capture that is
    larger by itself is removed. CaptureError says that nothing is left of it.
    """
    import jax

    try:
        seconds = (datetime.datetime.now(datetime.UTC) - begun.began).total_seconds()
        jax.profiler.stop_trace()
        record = _record(begun, seconds, cut_short)
        if record["bytes"] > limit:
            raise CaptureError(
                f"the capture had {record['bytes']:,} bytes, more than profile.disk_mib "
                f"({limit:,}), and was removed; ask for fewer seconds, or raise it"
            )
        (begun.folder / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        _make_room(begun.folder.parent, limit - record["bytes"])
        begun.folder.rename(begun.folder.parent / record["folder"])
    except (OSError, RuntimeError, CaptureError) as error:
        shutil.rmtree(begun.folder, ignore_errors=True)
        raise error if isinstance(error, CaptureError) else CaptureError(str(error)) from error
    return record


def captures(profile: Path) -> list[dict[str, Any]]:
    """Records of the captures in `profile`, oldest first."""
    found: list[dict[str, Any]] = []
    for path in profile.glob(f"*/{_RECORD}"):
        if not path.parent.name.startswith(_PARTIAL):
            try:
                found.append(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError):
                continue
    return sorted(found, key=lambda record: str(record["began"]))


def remove_partials(profile: Path) -> None:
    """Remove what a killed process left half written."""
    for path in profile.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _record(begun: Begun, seconds: float, cut_short: bool) -> dict[str, Any]:
    import jax
    import jaxlib

    files = [path for path in begun.folder.rglob("*") if path.is_file()]
    traces = [path for path in files if path.name.endswith(".trace.json.gz")]
    device = jax.devices()[0]
    return {
        "folder": begun.folder.name.removeprefix(_PARTIAL),
        "why": begun.cause.why,
        "began": begun.began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "cut_short": cut_short,
        "step": begun.cause.step,
        "policy_version": begun.cause.policy_version,
        "waited": begun.cause.waited,
        "bytes": sum(path.stat().st_size for path in files),
        "trace": str(traces[0].relative_to(begun.folder)) if traces else None,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "devices": f"{len(jax.devices())} x {device.platform} {device.device_kind}",
        "versions": {
            "patchgym": patchgym.__version__,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
        },
    }


def _make_room(profile: Path, limit: int) -> None:
    """Remove the oldest captures until the others have at most `limit` bytes."""
    kept = captures(profile)
    while kept and sum(int(record["bytes"]) for record in kept) > limit:
        shutil.rmtree(profile / str(kept.pop(0)["folder"]), ignore_errors=True)
