"""Keeps memory that a computation freed, so that the next one does not fault it in again.

XLA on CPU allocates a program's scratch space (1.5 GB for a row of 512 tokens) anew at every call.
glibc maps and unmaps blocks of that size, so each call touches 400,000 fresh pages, and the kernel
zeroes every one: an eighth of the learner's time on an idle machine, half of it on a busy virtual
one. With the calls below the blocks come from the heap, which keeps them.
"""

import ctypes
import ctypes.util

# Names and numbers from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = -1  # mallopt(3): this disables trimming


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep freed blocks; false where there is no such allocator.

    The process then stays at the largest size that it ever had. Call it once, before the first
    computation: threads that already have an arena of their own keep that.
    """
    name = ctypes.util.find_library("c")
    if name is None:
        return False
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None)
    if mallopt is None:
        return False
    # One arena: only the main one can grow past 64 MiB without mapping.
    settings = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)
