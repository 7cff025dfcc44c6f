"""Byte streams to a Docker daemon: the attach connection, over every kind of endpoint.

docker-py hands out the socket of an attached container in a different wrapping for each transport,
and can lose bytes that came with the response. Here the upgrade is asked for by hand: one request,
one answer, then the stream is ours (Docker Engine API, "attach to a container").
"""

from __future__ import annotations

import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc

from .errors import EngineUnavailable, SandboxUnavailable, SandboxUsageError
from .unix_stream import connect_unix

HEADER_LIMIT = 65536
TUNNEL_LIMIT = 20.0  # seconds for ssh to come up


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a daemon listens."""

    url: str
    """unix:///path, tcp://host:port, or ssh://[user@]host[:port][/path/of/the/socket]."""
    certificates: Path | None = None
    """Folder with ca.pem, cert.pem, key.pem; a tcp endpoint with it is spoken to over TLS."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("unix", "tcp", "ssh"):
            raise SandboxUsageError(f"a Docker host is unix://, tcp:// or ssh://, not {self.url!r}")
        if self.certificates is not None:
            for name in ("ca.pem", "cert.pem", "key.pem"):
                if not (self.certificates / name).is_file():
                    raise SandboxUsageError(f"no {name} in {self.certificates}")

    @property
    def local(self) -> bool:
        """The daemon runs under this machine's kernel, as far as a socket's kind can tell."""
        return self.url.startswith("unix://")

    def tls(self) -> ssl.SSLContext | None:
        """The context for a TLS connection, or None."""
        if self.certificates is None:
            return None
        context = ssl.create_default_context(cafile=str(self.certificates / "ca.pem"))
        context.load_cert_chain(self.certificates / "cert.pem", self.certificates / "key.pem")
        return context


async def upgrade(
    endpoint: Endpoint, path: str, body: bytes = b""
) -> tuple[anyio.abc.ByteStream, bytes]:
    """POST `body` to `path`, which turns the connection into a plain stream.

    Returns it, and the bytes of it that came along with the answer. Raises OSError when there is
    no connection, SandboxUnavailable when the daemon refuses.
    """
    stream = await connect(endpoint)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await stream.send(head.encode() + body)
        received = b""
        while b"\r\n\r\n" not in received:
            if len(received) > HEADER_LIMIT:
                raise SandboxUnavailable("the daemon's answer to attach is not HTTP")
            received += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError) as problem:
        await anyio.aclose_forcefully(stream)
        raise EngineUnavailable(f"the daemon at {endpoint.url} hung up") from problem
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise
    answer, _, early = received.partition(b"\r\n\r\n")
    status = answer.split(b" ", 2)[1:2]
    if status not in ([b"101"], [b"200"]):
        await anyio.aclose_forcefully(stream)
        reason = (early or answer).decode("utf-8", "replace").strip()[:300]
        raise SandboxUnavailable(f"the daemon refused to attach: {reason}")
    return stream, early


async def connect(endpoint: Endpoint) -> anyio.abc.ByteStream:
    """A connection to the daemon. Raises OSError."""
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix":
        return await connect_unix(parts.path)
    host, port = parts.hostname or "localhost", parts.port or 2375
    context = endpoint.tls()
    if context is None:
        return await anyio.connect_tcp(host, port)
    return await anyio.connect_tcp(
        host, port, tls=True, ssl_context=context, tls_standard_compatible=False
    )


class Tunnel:
    """ssh, forwarding a local socket to the daemon's on another machine.

    ssh's own configuration, agent and known hosts apply; it asks nothing.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise SandboxUsageError(f"no host in {url!r}")
        self._folder = tempfile.TemporaryDirectory(prefix="patchgym-ssh-")
        place = Path(self._folder.name, "docker.sock")
        remote = parts.path if len(parts.path) > 1 else "/var/run/docker.sock"
        target = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
        command = ["ssh", "-nNT", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
        command += ["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
        command += ["-p", str(parts.port)] if parts.port else []
        command += ["-L", f"{place}:{remote}", target]
        self.endpoint = Endpoint(url=f"unix://{place}")
        try:
            self._ssh = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as problem:
            self._folder.cleanup()
            raise EngineUnavailable(f"can't run ssh for {url}: {problem.strerror}") from problem
        self._wait(url, place)

    def is_up(self) -> bool:
        """Whether ssh still runs."""
        return self._ssh.poll() is None

    def close(self) -> None:
        """End ssh."""
        self._ssh.terminate()
        self._ssh.wait()
        if self._ssh.stderr is not None:
            self._ssh.stderr.close()
        self._folder.cleanup()

    def _wait(self, url: str, place: Path) -> None:
        deadline = time.monotonic() + TUNNEL_LIMIT
        while not place.exists():
            if not self.is_up() or time.monotonic() > deadline:
                self._ssh.terminate()
                said = self._ssh.communicate()[1].decode("utf-8", "replace").strip()
                last = (said.splitlines() or ["it did not come up in time"])[-1]
                self._folder.cleanup()
                raise EngineUnavailable(f"no ssh tunnel to {url}: {last}")
            time.sleep(0.02)
