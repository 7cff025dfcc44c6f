"""The Docker daemon, through docker-py in worker threads, with its errors sorted into ours."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from .attach import Endpoint, Tunnel, upgrade
from .errors import EngineUnavailable, ImageError, NameTaken, SandboxError, SandboxUnavailable
from .reaper import current_owner

OF_CONTAINERS = ("patchgym.kit", "patchgym.owner.", "patchgym.slot", "patchgym.lease")
"""Beginnings of labels that say something about a container, not about what is in it."""
PATIENCE = 900.0  # seconds for one answer when the daemon commits what may be gigabytes
T = TypeVar("T")
Client = Any
"""docker.APIClient, which has no types of its own."""


def _docker() -> Any:
    """The docker package, imported when first needed: it takes 0.2 s."""
    return import_module("docker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image as the daemon knows it."""

    id: str
    """Its content id."""
    tags: tuple[str, ...]
    """Its names."""
    architecture: str
    """As Go names it: amd64, arm64, ..."""
    size: int
    """Bytes, all layers."""
    labels: Mapping[str, str]
    """Its labels."""
    created: str
    """When, as ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What a commit sets; everything else is as in the image below."""

    tag: str
    labels: Mapping[str, str]
    message: str
    """What `docker history` shows."""
    user: str
    workdir: str
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ("/bin/sh",)


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

    def __init__(
        self,
        url: str | None = None,
        *,
        certificates: Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        """`url` as in `Endpoint`; None takes DOCKER_HOST, DOCKER_CERT_PATH and their defaults."""
        if url is None and certificates is None and os.environ.get("DOCKER_TLS_VERIFY"):
            certificates = Path(os.environ.get("DOCKER_CERT_PATH") or "~/.docker").expanduser()
        self.url = url or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self.endpoint = Endpoint(url=self.url, certificates=certificates)
        self.timeout = timeout
        self.local = self.endpoint.local
        self.creations = max(2 * (os.cpu_count() or 1), 2)
        """Most containers in creation at one time: more only adds latency."""
        self._tunnel: Tunnel | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._version: str | None = None
        self._podman = False
        self._loop: object = None
        self._limiters: tuple[anyio.CapacityLimiter, anyio.CapacityLimiter]

    async def ping(self) -> str:
        """The daemon's version. Raises EngineUnavailable."""
        return await self._call(lambda client: str(client.version()["Version"]))

    async def is_podman(self) -> bool:
        """Whether it is Podman that answers, which takes most but not all of what Docker does."""
        if self._version is None:
            await self._call(lambda client: None)
        return self._podman

    async def image_id(self, tag: str) -> str | None:
        """Id of a local image, or None when it is not there."""
        found = await self.image(tag)
        return found.id if found else None

    async def image(self, tag: str) -> ImageInfo | None:
        """A local image by tag, digest or id; None when it is not there."""

        def inspect(client: Client) -> ImageInfo | None:
            try:
                return _image_info(client.inspect_image(tag))
            except _docker().errors.ImageNotFound:
                return None

        return await self._call(inspect)

    async def remove_image(self, tag: str) -> bool:
        """Remove a tag, and the image with its last one; False when a container uses it."""

        def remove(client: Client) -> bool:
            try:
                client.remove_image(tag)
            except _docker().errors.ImageNotFound:
                return True
            except _docker().errors.APIError as problem:
                if problem.status_code != 409:
                    raise
                return False
            return True

        return await self._call(remove)

    async def derive(self, image: str, tar: bytes, finish: Finish) -> str:
        """A new image: `image` with an archive unpacked at its root. Returns its id."""

        def derive(client: Client) -> str:
            labels = current_owner().labels()
            made = client.create_container(
                image, command=["none"], network_disabled=True, labels=labels
            )["Id"]
            try:
                client.put_archive(made, "/", tar)
                return _commit(client, made, finish)
            finally:
                client.remove_container(made, force=True, v=True)

        return await self._call(derive, creating=True, timeout=PATIENCE)

    async def commit(self, name: str, finish: Finish) -> str:
        """A container's own layer as a new image. Returns its id."""
        return await self._call(lambda client: _commit(client, name, finish), timeout=PATIENCE)

    async def registry_offers(self, tag: str, *, within: float) -> bool:
        """Whether a registry answers the daemon, and has `tag`; False after `within` seconds."""

        def ask(client: Client) -> bool:
            from requests.exceptions import RequestException

            try:
                client.inspect_distribution(tag)
            except (_docker().errors.APIError, RequestException):
                return False
            return True

        return await self._call(ask, timeout=within)

    async def launch(
        self, name: str, config: Mapping[str, Any]
    ) -> tuple[anyio.abc.ByteStream, bytes]:
        """Create, attach, start; returns the stream that joins its stdin, stdout and stderr.

        The bytes are the stream's first, if any came early. Raises ImageError, EngineUnavailable,
        SandboxUnavailable. After an error, or when it is cancelled, the container may exist: remove
        it by its name.
        """
        async with self._limiter(creating=True):
            await self._call(partial(_create, name=name, config=config))
            path = f"/containers/{name}/attach?stdin=1&stdout=1&stderr=1&stream=1"
            stream, early = await self._upgrade(path)
            try:
                await self._call(lambda client: client.start(name))
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
        return stream, early

    async def exec_start(
        self, name: str, words: Sequence[str], *, environment: Sequence[str] = (), cwd: str = "/"
    ) -> tuple[str, anyio.abc.ByteStream, bytes]:
        """`docker exec`: its id, and its stream as that of `launch`."""

        def create(client: Client) -> str:
            made = client.exec_create(
                name, list(words), stdin=True, environment=list(environment), workdir=cwd
            )
            return str(made["Id"])

        number = await self._call(create)
        stream, early = await self._upgrade(
            f"/exec/{number}/start", b'{"Detach": false, "Tty": false}'
        )
        return number, stream, early

    async def exec_exit_code(self, number: str) -> int | None:
        """How an exec ended; None while it runs."""

        def inspect(client: Client) -> int | None:
            code = client.exec_inspect(number)["ExitCode"]
            return None if code is None else int(code)

        return await self._call(inspect)

    async def remove(self, name: str) -> None:
        """Remove a container by force; no error when it is gone already."""

        def remove(client: Client) -> None:
            try:
                client.remove_container(name, force=True, v=True)
            except _docker().errors.APIError as problem:
                if problem.status_code not in (404, 409):  # 409: it is being removed right now
                    raise

        await self._call(remove)

    async def kill(self, name: str) -> None:
        """SIGKILL to a container's PID 1; no error when it does not run."""

        def kill(client: Client) -> None:
            try:
                client.kill(name)
            except _docker().errors.APIError as problem:
                if problem.status_code not in (404, 409):
                    raise

        await self._call(kill)

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
            tunnel, self._tunnel = self._tunnel, None
            self._local = threading.local()
        for client in clients:
            client.close()
        if tunnel is not None:
            tunnel.close()

    async def _upgrade(self, path: str, body: bytes = b"") -> tuple[anyio.abc.ByteStream, bytes]:
        def find() -> Endpoint:
            with _sorted_errors(self.url):
                self._client()
                return self._reach()

        endpoint = await anyio.to_thread.run_sync(find, limiter=self._limiter(creating=False))
        try:
            return await upgrade(endpoint, f"/v{self._version}{path}", body)
        except OSError as problem:
            reason = problem.strerror or problem
            raise EngineUnavailable(f"no Docker daemon at {self.url}: {reason}") from problem

    async def _call(
        self,
        work: Callable[[Client], T],
        *,
        creating: bool = False,
        timeout: float | None = None,
    ) -> T:
        """In a thread, with the thread's client, or one for this call with its own `timeout`."""

        def call() -> T:
            with _sorted_errors(self.url):
                client = self._client()
                if timeout is None:
                    return work(client)
                version = client.api_version
                with closing(self._new_client(timeout=timeout, version=version)) as own:
                    return work(own)

        # not abandoned on cancellation: the daemon would finish the work behind our back
        return await anyio.to_thread.run_sync(call, limiter=self._limiter(creating))

    def _limiter(self, creating: bool) -> anyio.CapacityLimiter:
        loop = anyio.lowlevel.current_token()
        if self._loop is not loop:
            self._loop = loop
            self._limiters = anyio.CapacityLimiter(self.creations), anyio.CapacityLimiter(64)
        return self._limiters[0 if creating else 1]

    def _client(self) -> Client:
        self._reach()
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._connect()
            self._local.client = client
        return client

    def _connect(self) -> Client:
        if self._version is None:
            with closing(self._new_client(timeout=self.timeout, version="1.41")) as probe:
                facts = probe.version(api_version=False)
            parts = facts.get("Components") or ()
            self._podman = any(str(part.get("Name")).startswith("Podman") for part in parts)
            self._version = str(facts["ApiVersion"])
        client = self._new_client(timeout=self.timeout, version=self._version)
        with self._lock:
            self._clients.append(client)
        return client

    def _reach(self) -> Endpoint:
        """Where to connect: the endpoint, or this end of the ssh tunnel to it."""
        if not self.url.startswith("ssh://"):
            return self.endpoint
        with self._lock:
            if self._tunnel is not None and not self._tunnel.is_up():
                self._tunnel.close()
                self._tunnel = None
            if self._tunnel is None:
                self._tunnel = Tunnel(self.url)
            return self._tunnel.endpoint

    def _new_client(self, *, timeout: float, version: str) -> Client:
        endpoint = self._reach()
        docker = _docker()
        tls = None
        if endpoint.certificates is not None:
            folder = endpoint.certificates
            tls = docker.tls.TLSConfig(
                client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
                ca_cert=str(folder / "ca.pem"),
                verify=True,
            )
        url = endpoint.url.replace("tcp://", "https://" if tls else "http://")
        client = docker.APIClient(base_url=url, tls=tls or False, version=version, timeout=timeout)
        if endpoint.local:
            from .unix_adapter import UnixAdapter

            client.get_adapter(client.base_url).close()
            path = endpoint.url.removeprefix("unix://")
            client.mount("http+docker://", UnixAdapter(path, timeout))
        client.trust_env = False  # or REQUESTS_CA_BUNDLE would replace the endpoint's own CA
        return client


def _create(client: Client, *, name: str, config: Mapping[str, Any]) -> None:
    try:
        client.create_container_from_config(dict(config), name=name)
    except _docker().errors.APIError as problem:
        if problem.status_code == 409 or "already in use" in _short(problem):  # Podman says 500
            raise NameTaken(f"the daemon refused: {_short(problem)}", name=name) from problem
        raise


def _image_info(facts: Mapping[str, Any]) -> ImageInfo:
    config = facts.get("Config") or {}
    return ImageInfo(
        id=str(facts["Id"]),
        tags=tuple(facts.get("RepoTags") or ()),
        architecture=str(facts.get("Architecture", "")),
        size=int(facts.get("Size", 0)),
        labels=dict(config.get("Labels") or {}),
        created=str(facts.get("Created", "")),
    )


def _commit(client: Client, container: str, finish: Finish) -> str:
    repository, _, version = finish.tag.rpartition(":")
    # a commit takes over the container's labels, but an image has no owner to be swept with
    carried = client.inspect_container(container)["Config"]["Labels"] or {}
    blank = {name: "" for name in carried if name.startswith(OF_CONTAINERS)}
    conf = {
        "Labels": {**blank, **finish.labels},
        "Entrypoint": list(finish.entrypoint),
        "Cmd": list(finish.command),
        "User": finish.user,
        "WorkingDir": finish.workdir,
        "Healthcheck": {"Test": ["NONE"]},
    }
    made = client.commit(
        container,
        repository=repository,
        tag=version,
        message=finish.message,
        conf=conf,
        pause=False,
    )
    return str(made["Id"])


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
