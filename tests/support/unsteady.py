"""A door between a client and a server whose connections can be reset at any moment."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset instead of what is left."""


class Door:
    """Takes connections on `listener`, and forwards each to what `target` opens."""

    def __init__(self, listener: socket.socket, target: Callable[[], socket.socket]) -> None:
        self._listener, self._target = listener, target
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> int:
        """Break every connection off; how many there were. New ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                _break_off(each)
        return len(pairs)

    def shut(self) -> None:
        """Take no more, and break off what there is."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._target()
            except OSError:  # nobody is behind the door
                _break_off(client)
                continue
            with self._lock:
                self._pairs.append((client, server))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _break_off(each: socket.socket) -> None:
    with suppress(OSError):
        if each.family != socket.AF_UNIX:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        # A thread may be reading from it: closing alone would wait for that.
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _break_off(source)
        _break_off(target)


@contextmanager
def tcp_door(port: Callable[[], int]) -> Iterator[tuple[int, Door]]:
    """A port of this machine, and the door behind it to the port that `port` says."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    door = Door(listener, lambda: socket.create_connection(("127.0.0.1", port()), timeout=None))
    try:
        yield listener.getsockname()[1], door
    finally:
        door.shut()


@contextmanager
def unix_door(path: Path, target: str) -> Iterator[Door]:
    """A door at the unix socket `path` to the unix socket `target`."""

    def connect() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(target)
        return server

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    door = Door(listener, connect)
    try:
        yield door
    finally:
        door.shut()
