"""Where new weights go: one interface, and the rungs below it.

JaxSampler     implements it itself: laid out by the sampler, in the same process
EngineWeights  vLLM in this process: JAX arrays handed over by dlpack, between two steps
ServerWeights  vLLM servers: one versioned file that each of them loads
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from patchgym.agent.policies.engine import VllmEngine
from patchgym.agent.policies.errors import PolicyError, WeightPushError
from patchgym.agent.policies.server import VllmServer
from patchgym.trainer.telemetry.signals import weights_span

if TYPE_CHECKING:
    from patchgym.trainer.model.config import ModelConfig
    from patchgym.trainer.model.decoder import Params

DEFAULT_FOLDER = Path("/dev/shm")
"""Memory that processes of one machine share; on several machines, name a shared folder."""


class WeightSink(Protocol):
    """Takes the learner's weights; turns that begin afterwards are sampled with them."""

    async def publish(self, params: Params, version: int) -> None:
        """Take `params` as `version`; they may be changed or freed when this returns.

        Raises ValueError unless `version` is newer and `params` fit the model.
        """
        ...


class EngineWeights:
    """Publishes to a VllmEngine in this process."""

    def __init__(self, engine: VllmEngine, config: ModelConfig) -> None:
        self._engine, self._config = engine, config

    async def publish(self, params: Params, version: int) -> None:
        """See WeightSink; a push that breaks the engine raises WeightPushError."""
        from .names import hugging_face_shapes, hugging_face_tensors

        tensors = hugging_face_tensors(self._config, params)
        with weights_span("load", version):
            await self._engine.push(tensors, version, shapes=hugging_face_shapes(self._config))


class ServerWeights:
    """Publishes to vLLM servers through one file; an async context manager.

    A server that doesn't take a version is left out, by name in `failed`, as long as another one
    takes it; it gets the next version like all others.
    """

    def __init__(
        self, servers: Sequence[VllmServer], config: ModelConfig, folder: Path = DEFAULT_FOLDER
    ) -> None:
        """`folder` must be the same one for learner and servers, and hold two models."""
        if not servers:
            raise ValueError("there is no server to publish to")
        self._servers, self._config = tuple(servers), config
        self._root = folder
        self._folder: Path | None = None
        self._failed: dict[str, str] = {}
        self._published: int | None = None

    async def __aenter__(self) -> ServerWeights:
        """Make a folder of its own inside `folder`."""
        self._folder = await anyio.to_thread.run_sync(_own_folder, self._root)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the folder."""
        folder, self._folder = self._folder, None
        if folder is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, folder)

    @property
    def failed(self) -> Mapping[str, str]:
        """Servers that did not take the newest version, by address, and why."""
        return dict(self._failed)

    async def publish(self, params: Params, version: int) -> None:
        """See WeightSink; WeightPushError, naming each server, when none took the weights.

        The first version of a sink may be older than what servers have: they outlive a run that
        is killed, and it resumes from before.
        """
        from .files import remove_versions, version_file, write_weights

        if self._folder is None:
            raise WeightPushError("the folder of weights is not open: use `async with`")
        newest = self._published
        if newest is not None and version <= newest:
            raise ValueError(f"version {version} is not newer than {newest}")
        file = version_file(self._folder, version)
        with weights_span("write", version):
            await anyio.to_thread.run_sync(write_weights, self._config, params, file)
        failed: dict[str, str] = {}
        async with anyio.create_task_group() as group:
            for server in self._servers:
                group.start_soon(_push, server, file, version, failed)
        self._failed = failed
        taken = len(failed) < len(self._servers)
        if taken:
            self._published = version
        # A file that nobody took says nothing to anybody; a taken one is kept for a look at it.
        await anyio.to_thread.run_sync(
            lambda folder: remove_versions(folder, keep=version if taken else None), self._folder
        )
        if not taken:
            raise WeightPushError("; ".join(failed.values()))


async def _push(server: VllmServer, file: Path, version: int, failed: dict[str, str]) -> None:
    try:
        with weights_span("load", version, server.url):
            await server.push(file, version, rewind=True)
    except PolicyError as error:
        failed[server.url] = str(error)


def _own_folder(root: Path) -> Path:
    """A new folder in `root`; those of processes of this machine that are gone are removed."""
    prefix = f"patchgym-weights-{socket.gethostname()}-"
    for folder in root.glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(folder)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root))
    folder.chmod(0o755)  # a server may run as somebody else
    return folder


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
