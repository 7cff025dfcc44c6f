"""Freed memory stays with the process, in a process of its own: the settings can't be taken back."""

from __future__ import annotations

import subprocess
import sys

from patchgym.trainer.memory import keep_freed_memory

CHILD = """
import resource, sys
import numpy as np
from patchgym.trainer.memory import keep_freed_memory
size = 256 * 2**20
if sys.argv[1] == "keep":
    assert keep_freed_memory(least=0)
np.ones(size, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    np.ones(size, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    command = [sys.executable, "-c", CHILD, how]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_memory_is_not_faulted_in_again() -> None:
    assert _faults("keep") < _faults("leave") / 4


def test_a_small_machine_is_left_alone() -> None:
    assert keep_freed_memory(least=10**18) is False
