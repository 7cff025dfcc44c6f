"""The Docker daemon, through docker-py in worker threads, with its errors sorted into ours."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from .errors import EngineUnavailable, ImageError, SandboxError, SandboxUnavailable

T = TypeVar("T")
Client = Any
"""docker.APIClient, which has no types of its own."""


def _docker() -> Any:
    """The docker package, imported when first needed: it takes 0.2 s."""
    return import_module("docker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInfo:
    """A container as the daemon lists it."""

    name: str
    """Its name, without the leading slash."""
    labels: Mapping[str, str]
    """Its labels."""
    state: str
    """created, running, exited, ..."""


class Engine:
    """One Docker daemon. Calls are bounded, run in threads, and use one client per thread.

    Close it with `close()`; a closed engine opens again on the next call.
    """

    def __init__(self, url: str | None = None, *, timeout: float = 60.0) -> None:
        self.url = url or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self.timeout = timeout
        self.local = self.url.startswith("unix://")
        self.creations = max(2 * (os.cpu_count() or 1), 2)
        """Most containers in creation at one time: more only adds latency."""
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._version: str | None = None
        self._loop: object = None
        self._limiters: tuple[anyio.CapacityLimiter, anyio.CapacityLimiter]

    async def ping(self) -> str:
        """The daemon's version. Raises EngineUnavailable."""
        return await self._call(lambda client: str(client.version()["Version"]))

    async def image_id(self, tag: str) -> str | None:
        """Id of a local image, or None when it is not there."""

        def inspect(client: Client) -> str | None:
            images = client.images(name=tag)
            return str(images[0]["Id"]) if images else None

        return await self._call(inspect)

    async def registry_offers(self, tag: str, *, within: float) -> bool:
        """Whether a registry answers the daemon, and has `tag`; False after `within` seconds."""

        def ask(_: Client) -> bool:
            from requests.exceptions import RequestException

            client = self._new_client(timeout=within)
            try:
                client.inspect_distribution(tag)
            except (_docker().errors.APIError, RequestException):
                return False
            finally:
                client.close()
            return True

        return await self._call(ask)

    async def launch(self, name: str, config: Mapping[str, Any]) -> socket.socket:
        """Create, attach, start; returns the stream that joins its stdin, stdout and stderr.

        Raises ImageError, EngineUnavailable, SandboxUnavailable. After an error, or when it is
        cancelled, the container may exist: remove it by its name.
        """

        def launch(client: Client) -> socket.socket:
            made = client.create_container_from_config(dict(config), name=name)["Id"]
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            stream = _detach(client.attach_socket(made, params=params))
            try:
                client.start(made)
            except BaseException:
                stream.close()
                raise
            return stream

        return await self._call(launch, creating=True)

    async def remove(self, name: str) -> None:
        """Remove a container by force; no error when it is gone already."""

        def remove(client: Client) -> None:
            try:
                client.remove_container(name, force=True, v=True)
            except _docker().errors.APIError as problem:
                if problem.status_code not in (404, 409):  # 409: it is being removed right now
                    raise

        await self._call(remove)

    async def gone(self, name: str, *, within: float) -> bool:
        """Wait until a container does not exist any more; False after `within` seconds."""

        def wait(client: Client) -> bool:
            from requests.exceptions import RequestException

            try:
                client.wait(name, timeout=within, condition="removed")
            except _docker().errors.NotFound:
                return True
            except RequestException:
                return False
            return True

        return await self._call(wait)

    async def containers(self, labels: Mapping[str, str]) -> tuple[ContainerInfo, ...]:
        """All containers, running or not, that carry `labels`."""
        filters = {"label": [f"{key}={value}" for key, value in labels.items()]}

        def listing(client: Client) -> tuple[ContainerInfo, ...]:
            return tuple(
                ContainerInfo(
                    name=str(item["Names"][0]).lstrip("/"),
                    labels=dict(item["Labels"]),
                    state=str(item["State"]),
                )
                for item in client.containers(all=True, filters=filters)
                if item["Names"]
            )

        return await self._call(listing)

    async def inspect(self, name: str) -> dict[str, Any] | None:
        """What the daemon knows of a container; None when it does not exist."""

        def inspect(client: Client) -> dict[str, Any] | None:
            try:
                return dict(client.inspect_container(name))
            except _docker().errors.NotFound:
                return None

        return await self._call(inspect)

    def close(self) -> None:
        """Close the connections. Call it when no call is in progress."""
        with self._lock:
            clients, self._clients = self._clients, []
            self._local = threading.local()
        for client in clients:
            client.close()

    async def _call(self, work: Callable[[Client], T], *, creating: bool = False) -> T:
        def call() -> T:
            with _sorted_errors(self.url):
                return work(self._client())

        # not abandoned on cancellation: the daemon would finish the work behind our back
        return await anyio.to_thread.run_sync(call, limiter=self._limiter(creating))

    def _limiter(self, creating: bool) -> anyio.CapacityLimiter:
        loop = anyio.lowlevel.current_token()
        if self._loop is not loop:
            self._loop = loop
            self._limiters = anyio.CapacityLimiter(self.creations), anyio.CapacityLimiter(64)
        return self._limiters[0 if creating else 1]

    def _client(self) -> Client:
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._connect()
            self._local.client = client
        return client

    def _connect(self) -> Client:
        client = self._new_client(timeout=self.timeout)
        with self._lock:
            self._version = str(client.api_version)
            self._clients.append(client)
        return client

    def _new_client(self, *, timeout: float) -> Client:
        if self.local:  # docker-py leaves its socket open when nobody listens
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self.url.removeprefix("unix://"))
        docker = _docker()
        kwargs = docker.utils.kwargs_from_env({**os.environ, "DOCKER_HOST": self.url})
        version = self._version or "auto"
        return docker.APIClient(**kwargs, version=version, timeout=timeout)


def _detach(wrapped: Any) -> socket.socket:
    """The plain socket under what `attach_socket` returns, ours alone."""
    if not hasattr(wrapped, "fileno") or hasattr(wrapped, "context"):
        raise EngineUnavailable("attach needs a unix or plain TCP connection to the daemon")
    stream = socket.socket(fileno=os.dup(wrapped.fileno()))
    response = getattr(wrapped, "_response", None)
    if response is not None:
        response.close()
    wrapped.close()
    return stream


@contextmanager
def _sorted_errors(url: str) -> Iterator[None]:
    from requests.exceptions import ReadTimeout, RequestException

    errors = _docker().errors
    try:
        yield
    except SandboxError:
        raise
    except errors.ImageNotFound as problem:
        raise ImageError(f"the daemon has no such image: {_short(problem)}") from problem
    except errors.APIError as problem:
        raise SandboxUnavailable(f"the daemon refused: {_short(problem)}") from problem
    except ReadTimeout as problem:
        raise EngineUnavailable(f"the Docker daemon at {url} did not answer in time") from problem
    except (errors.DockerException, RequestException, OSError) as problem:
        raise EngineUnavailable(f"no Docker daemon at {url}: {_short(problem)}") from problem


def _short(problem: Exception) -> str:
    explanation = getattr(problem, "explanation", None) or problem
    if isinstance(explanation, bytes):
        explanation = explanation.decode("utf-8", "replace")
    text = str(explanation)
    if text.startswith("{"):
        text = str(json.loads(text).get("message", text))
    return " ".join(text.split())[:300]
