"""A process other than the first: carries out what process 0 tells it, until told to end."""

from __future__ import annotations

import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.trainer.stopping import leave

from .errors import LeaderLost
from .gather import whole
from .sequences import outcome, unpacked
from .wire import Line, LineLost, Message

if TYPE_CHECKING:
    from patchgym.trainer.checkpoint import CheckpointStore
    from patchgym.trainer.config import RunConfig
    from patchgym.trainer.learner import Learner

ROW_LIMIT = 3600.0
"""Seconds that process 0 may take between two rows of a step."""


def alone(how: str) -> None:
    """Process 0 is gone: end at once, since a collective may wait for it for ever."""
    leave(f"process 0 of the learner is gone: {how}; its own words say why", 2)


class Follow:
    """The learner's part in this process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._config: RunConfig | None = None
        self._loaded: Any = None
        self._learner: Learner | None = None
        self._store: CheckpointStore | None = None

    def run(self) -> bool:
        """Do what is told until the end; whether all end in order. Raises LeaderLost, or this
        process's own fault after it was told to process 0."""
        # A scheduler signals all processes: process 0 ends the run in order, and then this one.
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda number, frame: None)
        try:
            while True:
                message = self._line.receive(None)
                if message.kind == "end":
                    return bool(message.fields["clean"])
                if message.kind == "hold":
                    self._checkpoints.hold(message.fields["step"])
                else:
                    self._answer(message)
        except LineLost as error:
            raise LeaderLost(f"process 0 of the learner is gone: {error}") from None

    @property
    def _checkpoints(self) -> CheckpointStore:
        assert self._store is not None, "told before the checkpoints were opened"
        return self._store

    def _answer(self, message: Message) -> None:
        from patchgym.trainer.checkpoint_errors import CheckpointError
        from patchgym.trainer.learner import StepInterrupted

        try:
            found = self._do(message)
        except (StepInterrupted, CheckpointError, ValueError) as error:
            self._line.send("done", error=_words(error))
        except Exception as error:
            self._line.send("failed", error=_words(error))
            raise
        else:
            self._line.send("done", found=found)

    def _do(self, message: Message) -> list[str]:
        """What came of it, for what process 0 compares."""
        told: dict[str, Any] = message.fields
        if message.kind == "load":
            self._load(told["config"])
            return []
        config = self._config
        assert config is not None, "told before there were settings"
        if message.kind == "learner":
            from patchgym.trainer.learner import Learner

            self._learner = Learner(config.learner, *self._loaded, seed=config.run.seed)
            self._loaded = None
            return []
        learner = self._learner
        assert learner is not None, "told before the learner was made"
        match message.kind:
            case "checkpoints":
                from patchgym.trainer.checkpoint import CheckpointStore

                keep, best = config.checkpoint.keep, config.checkpoint.best
                self._store = CheckpointStore(Path(told["folder"]), keep=keep, best=best)
            case "train":
                groups = unpacked(message.arrays, told)
                return outcome(learner.train(groups, should_stop=self._given_up))
            case "weights":
                whole(learner.params, keep=False)
            case "save":
                self._checkpoints.save(learner, metadata=told["metadata"], wait=told["wait"])
            case "wait":
                self._checkpoints.wait()
            case "note":
                self._checkpoints.note(told["step"], told["measure"], told["value"])
            case "restore":
                self._checkpoints.restore(learner, step=told["step"])
            case unknown:
                raise RuntimeError(f"process 0 says {unknown!r}: is it of another version?")
        return []

    def _given_up(self) -> bool:
        return bool(self._line.receive(ROW_LIMIT).fields["stop"])

    def _load(self, settings: str) -> None:
        from patchgym.trainer.config import config_from_mapping
        from patchgym.trainer.model.load import load_model
        from patchgym.trainer.policies import model_path

        self._config = config_from_mapping(tomllib.loads(settings), source="process 0")
        self._loaded = load_model(model_path(self._config.model.path))[:2]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
