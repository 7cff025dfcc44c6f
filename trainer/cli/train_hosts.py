"""`patchgym train --processes`: one training whose learner is spread over several processes."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from patchgym.trainer.multihost import Processes

from .exits import classify

if TYPE_CHECKING:
    from patchgym.trainer.multihost.hosts import Hosts


def add_processes(arguments: argparse.ArgumentParser) -> None:
    """The flags that say which process this is."""
    arguments.add_argument(
        "--processes",
        default="1",
        metavar="N|auto",
        help="train one learner in N processes; auto asks SLURM, Open MPI or the TPU pod",
    )
    arguments.add_argument(
        "--process", type=int, metavar="I", help="this one's number; 0 runs the training"
    )
    arguments.add_argument(
        "--coordinator", default="", metavar="HOST:PORT", help="where process 0 listens"
    )


def train_in(processes: Processes, train: Callable[[Hosts], int]) -> int:
    """Meet the other processes; then `train` in process 0, and follow it in all others.

    A training that ends by an error ends this process here: JAX would wait minutes for the others.
    """
    from patchgym.trainer.multihost.following import Follow
    from patchgym.trainer.multihost.joining import Follower, join, part

    _keep_stdout()
    hosts = join(processes)
    if isinstance(hosts, Follower):
        print(f"patchgym: process {hosts.index} follows process 0", file=sys.stderr)
        try:
            clean = Follow(hosts.line).run()
        except BaseException as error:
            _leave(error)
        if not clean:
            os._exit(0)
        part()
        return 0
    try:
        code = train(hosts)
    except BaseException as error:
        hosts.end(clean=False)
        _leave(error)
    if hosts.lost:
        os._exit(code)
    hosts.end(clean=True)
    part()
    return code


def _keep_stdout() -> None:
    """Standard output is ours alone: what libraries print to it, as Gloo does, goes to stderr."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(ours, "w", buffering=1)


def _leave(error: BaseException) -> NoReturn:
    """As the command line ends by `error`, and at once."""
    found = classify(error)
    if found is None:
        traceback.print_exception(error)
    elif found[1]:
        print(f"patchgym: {found[1]}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(found[0] if found else 1)
