"""What a component may look at: the change, file by file, and what is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from patchgym.agent import Trajectory
from patchgym.datasets.task import Task
from patchgym.sandbox.linting import LintReport

from .base import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a file."""

    number: int
    """From 1."""
    text: str
    """Without its line end; bytes that are no UTF-8 are surrogates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Neighbouring lines that were replaced, without any context."""

    removed: tuple[Line, ...] = ()
    """Numbered as in the old file."""
    added: tuple[Line, ...] = ()
    """Numbered as in the new file."""

    @property
    def size(self) -> int:
        """Lines removed and added."""
        return len(self.removed) + len(self.added)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """One file that a diff changed."""

    path: str
    """Where it is now or, if it is gone, where it was."""
    before: bytes | None
    """None: it was not there."""
    after: bytes | None
    """None: it is not there any more."""
    hunks: tuple[Hunk, ...] = ()
    """Empty for a binary file, and where only the name or the mode changed."""
    old_path: str | None = None
    """Where it was, if it was renamed."""
    binary: bool = False
    """Git sees no text in it."""

    @property
    def added(self) -> int:
        """Lines added."""
        return sum(len(hunk.added) for hunk in self.hunks)

    @property
    def removed(self) -> int:
        """Lines removed."""
        return sum(len(hunk.removed) for hunk in self.hunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a diff makes of a repository, as git understands it."""

    tree: str
    """Git's name of the result: diffs of a task with the same one are the same patch. For a diff
    that does not apply, a digest of its bytes."""
    files: tuple[ChangedFile, ...] = ()
    """By path."""
    problem: str = ""
    """Why the diff does not apply; it then has no files."""
    cut: str = ""
    """What of it is not in `files`, because there is too much."""

    @property
    def size(self) -> int:
        """Lines added and removed."""
        return sum(file.added + file.removed for file in self.files)

    def hunks(self) -> Iterator[tuple[ChangedFile, Hunk]]:
        """All hunks, each with its file."""
        return ((file, hunk) for file in self.files for hunk in file.hunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a rollout went about it."""

    turns: int
    """Completions."""
    sampled_tokens: int = 0
    """Ids that the policy gave."""
    observations: Counter[str] = field(default_factory=Counter)
    """How often each kind of observation came, such as `format_error`."""
    stop_reason: str = ""

    @classmethod
    def of(cls, trajectory: Trajectory) -> Conduct:
        """Of one trajectory."""
        answers = (answer for turn in trajectory.turns for answer in turn.observations)
        return cls(
            turns=len(trajectory.turns),
            sampled_tokens=trajectory.sampled_tokens,
            observations=Counter(answer.kind for answer in answers),
            stop_reason=trajectory.stop_reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything about one candidate patch. What a component does not ask for may be missing."""

    task: Task
    diff: bytes
    """As it was handed in."""
    change: Change
    gold: Change
    """What the task's own solution changes; without files when the task has none."""
    verdict: Verdict | None = None
    lint: LintReport | None = None
    conduct: Conduct | None = None
    """None for a patch that no rollout of ours made."""
