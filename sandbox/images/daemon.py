"""The Docker daemon as image builds need it: containers to commit, layers, who uses what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio.abc

from patchgym.sandbox.engine import Client, Engine, Finish

from .access import PLACE

SCRATCH_MIB = 1536
"""Room in the folder of a build's loans, MiB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalImage:
    """An image of the daemon's listing, one for each of its tags."""

    id: str
    """Its content id."""
    tag: str
    """One of its names; empty when it has none."""
    parent: str
    """Id of the image that it was committed on; empty when the daemon does not know."""
    size: int
    """Bytes, all layers."""
    created: float
    """Unix time, seconds."""
    labels: Mapping[str, str]
    """Its labels."""


class ImageEngine(Engine):
    """An engine whose containers are there to be committed."""

    async def launch(
        self, name: str, config: Mapping[str, Any]
    ) -> tuple[anyio.abc.ByteStream, bytes]:
        """As of any engine, but with a folder in memory for loans and no environment of its own.

        An image keeps for ever what its container's configuration was; mounts are not in that.
        """
        mounts = config["HostConfig"].get("Tmpfs", {}) | {
            PLACE: f"rw,exec,nosuid,nodev,size={SCRATCH_MIB}m,mode=0755"
        }
        host = {**config["HostConfig"], "Tmpfs": mounts}
        return await super().launch(name, {**config, "Env": [], "HostConfig": host})

    async def pull(self, tag: str, *, within: float) -> bool:
        """Fetch an image from its registry; whether it is here then. Gives up after `within` s
        without a byte."""

        def pull(client: Client) -> None:
            from docker.errors import APIError
            from docker.utils import parse_repository_tag
            from requests.exceptions import RequestException

            name, version = parse_repository_tag(tag)
            try:
                for _ in client.pull(name, tag=version or "latest", stream=True):
                    pass
            except (APIError, RequestException):
                return  # the daemon's word below is the one that counts

        await self._call(pull, timeout=within)
        return await self.image_id(tag) is not None

    async def finish_like(self, image: str, tag: str, labels: Mapping[str, str]) -> Finish:
        """What runs in the image `tag` by default is what runs in `image`, or a shell."""

        def inspect(client: Client) -> dict[str, Any]:
            return dict(client.inspect_image(image)["Config"] or {})

        own = await self._call(inspect)
        entrypoint, command = own.get("Entrypoint") or [], own.get("Cmd") or []
        return Finish(
            tag=tag,
            labels=labels,
            message="patchgym recipe",
            user=own.get("User") or "0:0",
            workdir=own.get("WorkingDir") or "/",
            entrypoint=entrypoint,
            command=command if entrypoint or command else ["/bin/sh"],
        )

    async def listing(self) -> tuple[LocalImage, ...]:
        """All images of the daemon, those between others too."""

        def listing(client: Client) -> tuple[LocalImage, ...]:
            return tuple(each for item in client.images(all=True) for each in _each_tag(item))

        return await self._call(listing)

    async def images_of_containers(self) -> frozenset[str]:
        """Ids of the images that some container, running or not, was made from."""

        def listing(client: Client) -> frozenset[str]:
            return frozenset(str(item["ImageID"]) for item in client.containers(all=True))

        return await self._call(listing)

    async def root_folder(self) -> str | None:
        """The folder of this machine where the daemon keeps images; None for a remote daemon."""
        if not self.local:
            return None
        return await self._call(
            lambda client: str(client.info().get("DockerRootDir") or "") or None
        )


def _each_tag(item: Mapping[str, Any]) -> Iterator[LocalImage]:
    for tag in item.get("RepoTags") or [""]:
        yield LocalImage(
            id=str(item["Id"]),
            tag="" if tag == "<none>:<none>" else str(tag),
            parent=str(item.get("ParentId") or ""),
            size=int(item.get("Size", 0)),
            created=float(item.get("Created", 0)),
            labels=dict(item.get("Labels") or {}),
        )
