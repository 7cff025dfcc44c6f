"""Before a run: every task must be worth running (gold scores 1, the empty patch 0)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from patchgym.datasets.task import Task
from patchgym.datasets.trial import TrialConfig
from patchgym.datasets.validate import Validation, validate_all
from patchgym.sandbox import Pool, SandboxError

from .errors import ConfigError


class ValidationCache:
    """Remembers which (task content, image) pairs were validated, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._keys: set[str] = set(json.loads(path.read_text()))
        except (FileNotFoundError, ValueError):
            self._keys = set()

    def missing(self, tasks: Iterable[Task], image_id: str) -> list[Task]:
        """Tasks that were never validated on this image."""
        return [task for task in tasks if self._key(task, image_id) not in self._keys]

    def add(self, tasks: Iterable[Task], image_id: str) -> None:
        """Remember valid tasks (atomic write)."""
        self._keys.update(self._key(task, image_id) for task in tasks)
        partial = self._path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(sorted(self._keys)))
        os.replace(partial, self._path)

    @staticmethod
    def _key(task: Task, image_id: str) -> str:
        return f"{task.content} {image_id}"


async def preflight(
    tasks: Sequence[Task],
    pool: Pool,
    *,
    image_id: str,
    cache: ValidationCache,
    jobs: int,
    progress: Callable[[int, int], None],
    trials: TrialConfig | None = None,
) -> int:
    """Validate what was not validated before; the number validated now.

    ConfigError names the first invalid task and the number of others.
    """
    missing = cache.missing(tasks, image_id)
    bad: list[str] = []
    lost: list[str] = []
    done: list[Task] = []
    progress(0, len(missing))

    def found(task: Task, validation: Validation) -> None:
        if validation.ok:
            done.append(task)
        elif validation.status == "invalid":
            bad.append(validation.reason)
        else:
            lost.append(validation.reason)
        progress(len(done) + len(bad) + len(lost), len(missing))

    await validate_all(missing, pool, found, jobs=jobs, config=trials)
    if done:
        cache.add(done, image_id)
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ConfigError(f"{bad[0]}{more}")
    if lost:
        raise SandboxError(f"could not validate {len(lost)} tasks: {lost[0]}")
    return len(missing)
