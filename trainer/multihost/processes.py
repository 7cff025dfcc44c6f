"""Which of a learner's processes this one is: from flags, or from what started it."""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.trainer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """As it was told on the command line. `count`, `index` and `coordinator` are None where JAX
    finds them itself, as under SLURM, Open MPI, and on TPU pods."""

    count: int | None = None
    """Processes that train one learner."""
    index: int | None = None
    """This one's number, from 0."""
    coordinator: str | None = None
    """HOST:PORT of process 0, as all others reach it."""


def processes_of(count: str, index: int | None, coordinator: str) -> Processes | None:
    """From `--processes`, `--process` and `--coordinator`; None for a training in one process.

    Raises ConfigError for flags that don't go together.
    """
    if count == "auto":
        if index is not None or coordinator:
            raise ConfigError(
                "--processes auto finds --process and --coordinator itself: leave them out"
            )
        return Processes()
    if not count.isdecimal() or int(count) < 1:
        raise ConfigError(f"--processes is a number from 1 or auto, not {count!r}")
    if int(count) == 1:
        if index or coordinator:
            raise ConfigError("--process and --coordinator are of several --processes")
        return None
    host, _, port = coordinator.rpartition(":")
    if index is None or not 0 <= index < int(count):
        raise ConfigError(f"--processes {count} wants --process, from 0 to {int(count) - 1}")
    if not host or not port.isdecimal():
        raise ConfigError(
            f"--processes {count} wants --coordinator HOST:PORT, where process 0 listens; "
            f"not {coordinator!r}"
        )
    return Processes(count=int(count), index=index, coordinator=coordinator)
