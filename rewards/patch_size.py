"""The patch size component: how much longer a diff is than it had to be."""

from __future__ import annotations

import math

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from patchgym.datasets.task import Task

from .base import Verdict

# Changed lines past the gold patch at which the value reaches 1 - 1/e.
_SCALE = 10.0


class PatchSizeComponent:
    """0 at the gold patch's size or below, rising smoothly towards 1 with every line past it."""

    name = "patch_size"

    def score(self, task: Task, diff: bytes, verdict: Verdict) -> tuple[float, dict[str, object]]:
        """`1 - exp(-excess / 10)`, excess in changed lines over the gold patch."""
        size, gold = changed_lines(diff), changed_lines(task.gold_patch.encode())
        excess = max(0, size - gold)
        evidence: dict[str, object] = {"changed_lines": size, "gold_lines": gold}
        return 1.0 - math.exp(-excess / _SCALE), evidence


def changed_lines(diff: bytes) -> int:
    """Added plus removed lines; a diff that unidiff can't read counts its +/- lines."""
    text = diff.decode("utf-8", "surrogateescape")
    try:
        return sum(file.added + file.removed for file in PatchSet(text))
    except UnidiffParseError:
        lines = text.splitlines()
        return sum(li[:1] in "+-" and li[:3] not in ("+++", "---") for li in lines if li)
