"""The `patchgym` command; each sub-command's module is imported when it is used.

Exit codes: 0 done; 1 the work says no; 2 the input or the machine is at fault; 130 stopped.
"""

from .main import main

__all__ = ["main"]
