"""HTTP over a Unix socket, for docker-py's client: one small pool of connections for all requests.

docker-py's own keeps a pool for each URL, which for container names means a new connection nearly
every time, and leaves its socket open when nobody listens. (Imported when first needed: it imports
docker, which takes 0.2 s.)
"""

from __future__ import annotations

import socket
from typing import Any

import urllib3.connection
import urllib3.connectionpool
from docker.transport.basehttpadapter import BaseHTTPAdapter


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Raises OSError, and leaves nothing open then."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self.timeout)
            connection.connect(self._path)
        except BaseException:
            connection.close()
            raise
        self.sock = connection


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=4)
        self._path = path
        self._seconds = timeout

    def _new_conn(self) -> Any:
        return _Connection(self._path, self._seconds)


class UnixAdapter(BaseHTTPAdapter):  # type: ignore[misc]
    """To be mounted at `http+docker://`."""

    def __init__(self, path: str, timeout: float) -> None:
        """`timeout` in seconds, to connect and between bytes."""
        self._pool = _Pool(path, timeout)
        super().__init__()

    def get_connection(self, url: str, proxies: object = None) -> Any:
        """The pool, whatever the URL."""
        return self._pool

    def get_connection_with_tls_context(self, *_: object, **__: object) -> Any:
        """The same, as newer releases of requests ask for it."""
        return self._pool

    def request_url(self, request: Any, proxies: object) -> str:
        """The path alone."""
        return str(request.path_url)

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()
        super().close()
