"""Images with a repository in place: one for each commit and recipe, in layers that are shared.

    base image ── recipe layer ── repository layer        built when first asked for, named by
       └ its id      └ key: base's id,  └ key: recipe's key, commit, workdir      their content
                       commands, files

`ImageStore` builds each once, whoever asks at the same time, and evicts the least recently used.
"""

from __future__ import annotations

import io
import posixpath
import re
import secrets
import shutil
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio.to_thread

from patchgym.sandbox.checkout import FILE_TIME, Snapshot, snapshot
from patchgym.sandbox.container import SandboxSnapshot
from patchgym.sandbox.engine import Engine, Finish, ImageInfo
from patchgym.sandbox.errors import ImageError, SandboxUsageError

from .access import BuildAccess
from .base import BASES, REGISTRY_LIMIT, ensure_base
from .build import BuildLog, build
from .cache import cache_folder
from .daemon import ImageEngine
from .lock import locked
from .recipe import ImageRecipe, digest
from .survey import (
    COMMIT_LABEL,
    KIND_LABEL,
    SET_LABEL,
    Kind,
    StoredImage,
    rebuilt_on_demand,
    survey,
    to_evict,
)
from .uses import Uses

OWNER = 1000  # uid and gid of the work tree
GRACE = 900.0  # seconds for which an image that was asked for is safe without a container
KEEP = 50 << 30  # bytes of our images
BUILD_WAIT = 7200.0  # seconds to wait for others' builds
PULL_PATIENCE = 300.0  # seconds without a byte after which a pull is given up
PREFIX = re.compile("[a-z0-9]+(?:[._-][a-z0-9]+)*")
FULL_ID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BakedImage:
    """An image with a repository in place. Lease from it with `writable_root=True`."""

    image: str
    """Its tag."""
    recipe_image: str
    """The tag of the image below, which holds the environment alone."""
    commit: str
    """Full id of the commit."""
    workdir: str
    """Where the repository is."""
    built: bool
    """Whether it was built just now; else it was there."""

    @property
    def snapshot(self) -> SandboxSnapshot:
        """For `Pool.lease(snapshot=...)`: then `Sandbox.diff()` knows what to compare with."""
        return SandboxSnapshot(image=self.image, commit=self.commit, digest=self.image)


class ImageStore:
    """The images of one Docker daemon. Processes that share `folder` share builds and limits.

    An async context manager. Methods raise EngineUnavailable without a daemon.
    """

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        access: BuildAccess | None = None,
        folder: Path | None = None,
        prefix: str = "patchgym",
        builds: int = 2,
        keep: int = KEEP,
        disk_floor: int = 5 << 30,
    ) -> None:
        """`access` is what builds may use of this machine, nothing by default; `builds` is how many
        may run at once; `keep` is the size in bytes of all our images past which the least recently
        used go after a build; `disk_floor` the bytes that must be free on the daemon's disk, which
        is only known for a daemon on this machine. `folder` holds logs, locks and last uses;
        `prefix` begins the images' names: sets with different prefixes don't see each other."""
        if builds < 1 or keep < 0 or disk_floor < 0:
            raise SandboxUsageError("builds is at least 1; keep and disk_floor are bytes")
        if not PREFIX.fullmatch(prefix):
            raise SandboxUsageError(f"a prefix is like my-images, lower case, not {prefix!r}")
        self.folder = folder or cache_folder("images")
        self._engine = ImageEngine(
            engine.url if engine else None,
            certificates=engine.endpoint.certificates if engine else None,
        )
        self._access = access or BuildAccess()
        self._prefix = prefix
        self._builds = builds
        self._keep = keep
        self._floor = disk_floor
        self._uses = Uses(self.folder / "uses.sqlite", self._engine.url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.close()

    async def environment(self, recipe: ImageRecipe) -> str:
        """Tag of the image with a recipe's environment and no repository, built when missing.

        Raises ImageError, which names the log, when it can't be built or the disk is full.
        """
        base = await self._base(recipe)
        tag = self._tag("recipe", recipe.key(base.id))
        async with self._once(tag):
            if not await self._claim(tag):
                labels = {KIND_LABEL: "recipe", SET_LABEL: self._prefix}
                finish = await self._engine.finish_like(base.id, tag, labels)
                async with self._place():
                    await build(self._engine, recipe, base, self._access, self._log(tag), finish)
                await self._uses.touch(tag)
        return tag

    async def bake(
        self, repository: Path, commit: str, recipe: ImageRecipe, *, workdir: str = "/workspace"
    ) -> BakedImage:
        """The image with a commit of a local repository in `workdir`, built when missing.

        Ask again before each lease: it costs little, and tells that the image is in use. Raises
        CheckoutError when the commit is not there, else as `environment`.
        """
        workdir = posixpath.normpath(workdir)
        if not workdir.startswith("/") or workdir in ("/", "//", "/tmp"):
            raise SandboxUsageError(f"workdir must be an absolute folder, not {workdir!r}")
        if not FULL_ID.fullmatch(commit):
            commit = (await snapshot(repository, commit)).commit
        key = recipe.key((await self._base(recipe)).id)
        below = self._tag("recipe", key)
        tag = self._tag("repository", digest(key, list(recipe.install), commit, workdir))
        async with self._once(tag):
            built = not await self._claim(tag, below)
            if built:
                taken = await snapshot(repository, commit)
                await self.environment(recipe)
                await self._build_repository(recipe, below, taken, workdir, tag)
                await self._uses.touch(tag, below)
        if built:
            await self._evict(self._keep, GRACE, rebuilt_on_demand)
        return BakedImage(
            image=tag, recipe_image=below, commit=commit, workdir=workdir, built=built
        )

    async def obtain(self, tag: str) -> bool:
        """Whether an image is here; one that is not is pulled where a registry has it."""
        if await self._engine.image_id(tag) is not None:
            return True
        async with self._once(tag):
            if await self._engine.image_id(tag) is not None:
                return True
            if not await self._engine.registry_offers(tag, within=REGISTRY_LIMIT):
                return False
            async with self._place():
                return await self._engine.pull(tag, within=PULL_PATIENCE)

    async def images(self) -> tuple[StoredImage, ...]:
        """All our images, the most recently used first."""
        listing = await self._engine.listing()
        used = await self._uses.times()
        standing = await self._engine.images_of_containers()
        return survey(listing, used, standing, prefix=self._prefix)

    async def prune(self, *, keep: int = 0, grace: float = GRACE) -> tuple[StoredImage, ...]:
        """Remove the least recently used until our images have at most `keep` bytes; what went.

        Images on which a container stands, and those asked for in the last `grace` seconds, stay.
        Snapshots and images with our supervisor go as well.
        """
        return await self._evict(keep, grace, lambda images: images)

    async def _evict(
        self,
        keep: int,
        grace: float,
        choose: Callable[[tuple[StoredImage, ...]], tuple[StoredImage, ...]],
    ) -> tuple[StoredImage, ...]:
        async with self._pruning():
            candidates = to_evict(choose(await self.images()), keep, time.time() - grace)
            gone = [each for each in candidates if await self._engine.remove_image(each.tag)]
            await self._uses.forget(*(image.tag for image in gone))
        return tuple(gone)

    async def _claim(self, *tags: str) -> bool:
        """Renew the use of images; whether the first is there, and then stays for a while."""
        async with self._pruning():
            await self._uses.touch(*tags)
            return await self._engine.image_id(tags[0]) is not None

    async def _base(self, recipe: ImageRecipe) -> ImageInfo:
        found = await self._engine.image(recipe.base)
        names = [name for name, tag in BASES.items() if tag == recipe.base]
        if found is None and names:
            async with self._once(recipe.base):
                await ensure_base(names[0], engine=self._engine)
            found = await self._engine.image(recipe.base)
        if found is None:
            raise ImageError(f"no local image {recipe.base}: build or pull it first")
        return found

    async def _build_repository(
        self, recipe: ImageRecipe, below: str, taken: Snapshot, workdir: str, tag: str
    ) -> None:
        tree = await anyio.to_thread.run_sync(_moved, taken.tar, workdir)
        labels = {KIND_LABEL: "repository", SET_LABEL: self._prefix, COMMIT_LABEL: taken.commit}
        finish = Finish(
            tag=tag,
            labels=labels,
            message=f"patchgym commit {taken.commit}",
            user=f"{OWNER}:{OWNER}",
            workdir=workdir,
        )
        async with self._place():
            if not recipe.install:
                await self._engine.derive(below, tree, finish)
                return
            base = await self._engine.image(below)
            if base is None:
                raise ImageError(f"{below} was removed while {tag} was to be built on it")
            log = self._log(tag)
            await build(self._engine, recipe, base, self._access, log, finish, tree=tree)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """One of the places for builds, with room on the disk."""
        places = self.folder / "locks" / "build"
        purpose = "find a place among the builds"
        async with locked(places, holders=self._builds, within=BUILD_WAIT, purpose=purpose):
            free = await self._free_bytes()
            if free is not None and free < self._floor:
                raise ImageError(
                    f"the Docker daemon's disk has {free / 1e9:.1f} GB free, and a build needs "
                    f"{self._floor / 1e9:.1f} GB (disk_floor): see patchgym images prune"
                )
            yield

    async def _free_bytes(self) -> int | None:
        """Of the daemon's disk; None when it can't be seen from here."""
        root = await self._engine.root_folder()
        if root is None:
            return None
        try:
            return (await anyio.to_thread.run_sync(shutil.disk_usage, root)).free
        except OSError:
            return None

    def _once(self, tag: str) -> AbstractAsyncContextManager[None]:
        name = tag.replace("/", "+").replace(":", "+")
        return locked(self.folder / "locks" / name, within=BUILD_WAIT, purpose=f"build {tag}")

    def _pruning(self) -> AbstractAsyncContextManager[None]:
        lock = self.folder / "locks" / "prune"
        return locked(lock, within=BUILD_WAIT, purpose="look for images while others are removed")

    def _tag(self, kind: Kind, key: str) -> str:
        return f"{self._prefix}/{kind}:{key}"

    def _log(self, tag: str) -> BuildLog:
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        return BuildLog(self.folder / "logs" / f"{tag.rpartition(':')[2]}-{stamp}.log")


def _moved(tar: bytes, workdir: str) -> bytes:
    """A snapshot's archive with its members below `workdir`, owned by the user of sandboxes."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(tar)) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        folder = tarfile.TarInfo(workdir.lstrip("/"))
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, FILE_TIME
        folder.uid = folder.gid = OWNER
        target.addfile(folder)
        for member in source:
            content = source.extractfile(member) if member.isreg() else None
            name = member.name.removeprefix("./")
            member.name = f"{folder.name}/{name}"
            member.uid = member.gid = OWNER
            if member.islnk():
                member.linkname = f"{folder.name}/{member.linkname.removeprefix('./')}"
            target.addfile(member, content)
    return buffer.getvalue()
