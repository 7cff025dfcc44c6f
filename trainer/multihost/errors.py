"""What ends a training in several processes.

UserError
  HostLost      process 0: another one failed, died, or does not answer
  LeaderLost    any other process: process 0 is gone, or did not come
"""

from __future__ import annotations

from patchgym.trainer.errors import UserError


class HostLost(UserError):
    """A process of the learner can't go on; the message names it and its machine."""


class LeaderLost(UserError):
    """The first process is gone, and with it the training."""
