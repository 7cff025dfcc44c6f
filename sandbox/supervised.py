"""Puts the supervisor into images, and knows which kind of it an image can have.

The static program goes in as one more layer, under a name of its own: a bind mount would need the
file on the daemon's machine, and an archive can't be unpacked into a read-only container.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from .engine import Engine, Finish
from .errors import ImageError, SandboxUnavailable, SandboxUsageError
from .spec import SandboxSpec

PLACE = "/.patchgym/supervisor"
REPOSITORY = "patchgym/supervised"
LABEL = "patchgym.supervised"
"""Label of our layer; its value is the id of the image below."""

Kind = Literal["static", "python", "shell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """An image, ready for sandboxes."""

    image: str
    """Id of the image to start."""
    kind: Kind
    """What its PID 1 will be."""

    def command(self, folders: tuple[str, ...]) -> list[str]:
        """Of PID 1; `folders` are watched for fullness."""
        if self.kind == "static":
            return [PLACE, *folders]
        if self.kind == "python":
            return ["python3", "-I", "-S", "-c", supervisor_source(), *folders]
        return ["sh", "-c", "while read -r _; do :; done"]

    def relay(self, port: int) -> list[str]:
        """The program that carries a port's connections to the owner."""
        if self.kind != "static":
            raise SandboxUsageError(
                "an allow-list needs the static supervisor, which is not to be had here: "
                "use network='none' or 'bridge'"
            )
        return [PLACE, "--relay", str(port)]


async def supervise(engine: Engine, spec: SandboxSpec, image: str) -> Supervised:
    """What to start for sandboxes of `image`. Raises ImageError when it is not there."""
    found = await engine.image(image)
    if found is None:
        raise ImageError(f"no local image {image}: build or pull it first, or call ensure_base()")
    program = static_program(found.architecture)
    if spec.supervisor == "static" and program is None:
        raise SandboxUnavailable(
            f"no static supervisor for {found.architecture} in this package: it is built when the "
            "package is; reinstall it, or use supervisor='python'"
        )
    if program is None or spec.supervisor in ("python", "shell"):
        kind: Kind = "shell" if spec.supervisor == "shell" else "python"
        return Supervised(image=found.id, kind=kind)
    digest = hashlib.sha256(program).hexdigest()[:12]
    tag = f"{REPOSITORY}:{found.id.removeprefix('sha256:')[:24]}-{digest}"
    ready = await engine.image_id(tag)
    if ready is None:
        finish = Finish(
            tag=tag,
            labels={LABEL: found.id},
            message="patchgym supervisor",
            user="0:0",
            workdir="/",
            command=(PLACE,),
        )
        ready = await engine.derive(found.id, _archive(program), finish)
    return Supervised(image=ready, kind="static")


@cache
def supervisor_source() -> str:
    """The program for images with Python."""
    return (files("patchgym.sandbox") / "supervisor.py").read_text("utf-8")


@cache
def static_program(architecture: str) -> bytes | None:
    """The static program for a machine as Go names it, or None when the package has none."""
    place = files("patchgym.sandbox") / "bin" / f"supervisor-{architecture}"
    return place.read_bytes() if place.is_file() else None


def _archive(program: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo(PLACE.rpartition("/")[0].lstrip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        member = tarfile.TarInfo(PLACE.lstrip("/"))
        member.mode, member.size = 0o755, len(program)
        archive.addfile(member, io.BytesIO(program))
    return buffer.getvalue()
