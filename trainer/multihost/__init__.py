"""One learner in several processes: the first one runs the training, the others do as it says.

    process 0    rollouts, ledger, queue, sampler, and the learner's first part
       |  commands and batches, over TCP                 learner's collectives, over the devices
       +----> process 1: the learner's next part   <------------------------------------------+
       +----> process N-1: ...                     <------------------------------------------+

    command   what every process then does, process 0 among them
    load, learner, checkpoints    opens what it has
    restore   goes on from a checkpoint
    train     one step; before each row process 0 says whether it is given up
    weights   gathers whole weights, of which process 0 keeps a copy for the sampler
    save, wait, note    a checkpoint, of which each writes its part
    end       leaves

Commands are carried out one at a time, in one order, so that every collective meets its like. An
end that is not told, a process that died or a host that is unreachable, ends all others: process 0
with `HostLost`, the others with `LeaderLost`. Then start them all again with `--resume`.

Importing this package imports no JAX.
"""

from .errors import HostLost, LeaderLost
from .processes import Processes, processes_of

__all__ = ["HostLost", "LeaderLost", "Processes", "processes_of"]
