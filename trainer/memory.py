"""Keeps memory that a computation freed, so that the next one does not fault it in again.

XLA on CPU allocates a program's scratch space (1.3 GiB for a row of 640 tokens) anew at every call.
glibc maps and unmaps blocks of that size, so each call touches 350,000 fresh pages and the kernel
zeroes every one: a tenth of the learner's CPU time on an idle machine, more on a busy virtual one.
With the settings below the blocks come from the heap, which keeps them.
"""

import ctypes
import os

# Names and numbers from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = -1  # mallopt(3): this disables trimming

ROOMY = 16 * 10**9
"""Bytes of physical memory from which on the larger process (6.6 GiB, not 3.9) is worth it."""


def keep_freed_memory(*, least: int = ROOMY) -> bool:
    """Tell the allocator to keep freed blocks, where the machine has at least `least` bytes.

    The process then stays as large as it ever was. False where the machine is smaller, or the C
    library has no such settings; nothing has changed then.
    """
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < least:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # One arena: only the main one can grow past 64 MiB without mapping.
    settings = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)
