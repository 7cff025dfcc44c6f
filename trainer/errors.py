"""The trainer's errors; every message is one line that says what is wrong and what to do.

UserError                the input or the machine is at fault: exit code 2
  ConfigError            an unknown key, a wrong type, a value out of range
  RunError               a run folder that is missing, damaged or in use
RunStopped               a budget or a deadline ended the run: exit code 1
"""

from __future__ import annotations


class UserError(Exception):
    """The input or the machine is at fault."""


class ConfigError(UserError):
    """The configuration can't be used."""


class RunError(UserError):
    """The run folder can't be used."""


class RunStopped(Exception):
    """The run ended before its last step; the message says why."""
