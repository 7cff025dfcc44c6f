"""What goes wrong with checkpoints, in one line that says where, why, and what to do."""

from __future__ import annotations

import gc
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .checkpoint_files import damage
from .errors import UserError


class CheckpointError(UserError):
    """A checkpoint can't be written or read."""


def require_space(folder: Path, needed: int) -> None:
    """CheckpointError when fewer than `needed` bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: a checkpoint needs {needed:,} bytes and {free:,} are free; "
            "make room or put the run's folder elsewhere, then resume"
        )


@contextmanager
def reading(folder: Path, step: int, others: Sequence[int]) -> Iterator[None]:
    """Turn whatever the checkpoint of `step` can't be read for into a CheckpointError.

    Its files' sizes are looked at first. The message names the newest of `others` (steps) that is
    whole.
    """
    path = folder / str(step)
    broken = damage(path) if path.is_dir() else "it is not there"
    cause: Exception | None = None
    if broken is None:
        try:
            with quiet():
                yield
            return
        except CheckpointError:
            raise
        except Exception as error:  # tensorstore's errors have no type of their own
            broken, cause = first_line(error), error.with_traceback(None)
        _drop_readers()
    raise CheckpointError(
        f"{path}: this checkpoint can't be restored ({broken}); {_instead(folder, others)}"
    ) from cause


def _drop_readers() -> None:
    """Collect Orbax's readers of the other arrays now, without a word from them.

    It leaves them where they are once one of them failed. Collected some time later, each would
    print a page about an error that was reported already.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _instead(folder: Path, others: Sequence[int]) -> str:
    """What to do without a checkpoint."""
    whole = [step for step in others if damage(folder / str(step)) is None]
    if not whole:
        return "no other is there: put its files back, or start a new run"
    return (
        f"put its files back, or remove it to go on from that of step {max(whole)}, which is whole"
    )


def first_line(error: BaseException) -> str:
    """The part of a long message that says what happened, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-75:]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Orbax from logging a page of tracebacks beside an error that we raise ourselves."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
