"""How processes find each other: a line from each to the first, then JAX's own service.

    process 0     listens at the coordinator's address until all have said who they are
    the others    connect there, trying until it listens
    all           jax.distributed.initialize: the devices of all are one list from here on

JAX alone would end a process that waits in vain by an abort that names nobody.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import patchgym

from .errors import HostLost, LeaderLost
from .hosts import Host, Hosts
from .processes import Processes
from .wire import Line, LineLost, LineSilent

JOIN_LIMIT = 300.0
"""Seconds within which all processes must have come."""
_PATIENCE = 10.0
"""Seconds that whoever connects may take to say who it is."""
_PAUSE = 0.5
"""Seconds between two attempts to reach process 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A process other than the first."""

    index: int
    """Its number."""
    line: Line
    """To process 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands among all."""

    count: int
    index: int
    host: str
    """Of process 0."""
    port: int
    devices: Sequence[int] | None = None
    """Those of this machine that are this process's; None for all."""


def join(processes: Processes) -> Hosts | Follower:
    """Meet all others; returns when all are there. Must come before anything else of JAX.

    Raises HostLost in process 0 and LeaderLost in others, past `JOIN_LIMIT` or for one that does
    not belong to them.
    """
    place = place_of(processes)
    if place.count == 1:
        return Hosts([])
    if place.index == 0:
        hosts, address = gather(place)
        _initialize(address, place)
        return Hosts(hosts)
    line, address = reach(place)
    _initialize(address, place)
    return Follower(index=place.index, line=line)


def place_of(processes: Processes) -> Place:
    """As it was told, or as JAX detects it; LeaderLost where it detects nothing."""
    count, index, address = processes.count, processes.index, processes.coordinator
    devices = None
    if count is None:
        from jax._src.clusters import ClusterEnv

        found: Any = ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, int(JOIN_LIMIT)
        )
        address, count, index, devices = found
    if address is None or count is None or index is None:
        raise LeaderLost(
            "--processes auto finds neither SLURM nor Open MPI nor a TPU pod here: say --processes "
            "N --process I --coordinator HOST:PORT"
        )
    host, _, port = address.rpartition(":")
    return Place(count=count, index=index, host=host.strip("[]"), port=int(port), devices=devices)


def gather(place: Place) -> tuple[list[Host], str]:
    """Process 0: wait for all others; they, by their numbers, and where JAX's service will be."""
    found: dict[int, Host] = {}
    deadline = time.monotonic() + JOIN_LIMIT
    with _listen(place.host, place.port) as listener:
        while len(found) < place.count - 1:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                missing = ", ".join(str(i) for i in range(1, place.count) if i not in found)
                raise HostLost(
                    f"process {missing} of the learner did not come within {JOIN_LIMIT:.0f} s: is "
                    f"it started, and does it reach {place.host}:{place.port}?"
                ) from None
            host = _welcome(connection, place, found)
            if host is not None:
                found[host.index] = host
        address = f"{_bracketed(place.host)}:{_free_port(place.host)}"
    hosts = [found[index] for index in sorted(found)]
    for host in hosts:
        with suppress(LineLost):  # the first turn tells of it
            host.line.send("meet", coordinator=address)
    return hosts, address


def reach(place: Place) -> tuple[Line, str]:
    """Another process: its line to process 0, and where JAX's service will be."""
    from .following import alone

    line = Line(_connect(place), on_lost=alone)
    about: dict[str, Any] = {"index": place.index, "count": place.count}
    about |= {"machine": socket.gethostname(), "pid": os.getpid()}
    try:
        line.send("hello", **about, version=patchgym.__version__)
        said = line.receive(JOIN_LIMIT + _PATIENCE)
    except (LineLost, LineSilent) as error:
        line.close()
        raise LeaderLost(f"process 0 of the learner is gone: {error}") from None
    if said.kind == "refused":
        line.close()
        raise LeaderLost(str(said.fields["why"]))
    return line, str(said.fields["coordinator"])


def part() -> None:
    """Leave JAX's service; returns when all processes did."""
    import jax

    jax.distributed.shutdown()


def _initialize(address: str, place: Place) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address,
            place.count,
            place.index,
            local_device_ids=place.devices,
            cluster_detection_method="deactivate",
            initialization_timeout=int(JOIN_LIMIT),
        )
        jax.devices()  # all tell each other of theirs here, and wait for each other only so long
    except RuntimeError as error:
        lost = LeaderLost if place.index else HostLost
        words = str(error).partition("\n")[0]
        raise lost(f"the learner's processes met, but not their devices: {words}") from None


def _listen(host: str, port: int) -> socket.socket:
    """On the address that the others know; on all, where that one is not this machine's own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError):
        return socket.create_server((host, port), family=family)
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise HostLost(f"process 0 can't listen at {host}:{port}: {error}") from None


def _welcome(connection: socket.socket, place: Place, found: dict[int, Host]) -> Host | None:
    """The process at the other end; None for one that does not belong here."""
    host = Host(partial(Line, connection))
    try:
        said = host.hello(_PATIENCE)
        why = _unfit(host, said, place, found)
        if not why:
            return host
        host.line.send("refused", why=f"process 0 of the learner refuses this one: {why}")
    except (LineLost, LineSilent, KeyError, TypeError, ValueError):
        pass
    host.line.close()
    return None


def _unfit(host: Host, said: dict[str, Any], place: Place, found: dict[int, Host]) -> str:
    version = patchgym.__version__
    if said["version"] != version:
        return f"it is patchgym {said['version']}, process 0 is {version}"
    if said["count"] != place.count:
        return f"it is of {said['count']} processes, process 0 of {place.count}"
    if host.index in found:
        return f"{found[host.index].name} is there already"
    return "" if 0 < host.index < place.count else f"there is no process {host.index}"


def _connect(place: Place) -> socket.socket:
    deadline = time.monotonic() + JOIN_LIMIT
    while True:
        try:
            return socket.create_connection((place.host, place.port), timeout=_PATIENCE)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LeaderLost(
                    f"process 0 of the learner does not answer at {place.host}:{place.port} "
                    f"within {JOIN_LIMIT:.0f} s: {error}"
                ) from None
            time.sleep(_PAUSE)


def _free_port(host: str) -> int:
    with _listen(host, 0) as probe:
        port: int = probe.getsockname()[1]
    return port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
