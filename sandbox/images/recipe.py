"""How an environment is made: a base image, and commands that install things on top of it."""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio.to_thread

from patchgym.sandbox.checkout import snapshot
from patchgym.sandbox.errors import CheckoutError, SandboxUsageError

from .base import BASES

LAYOUT = "1"
"""Part of every key: raise it when the same recipe would be built in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """An environment. Equal recipes on an equal base image share one layer.

    Raises SandboxUsageError on values that can't work.
    """

    base: str = BASES["bookworm"]
    """Tag or id of a local image; the default one is made when it is missing."""
    commands: tuple[str, ...] = ()
    """Run in this order by the image's sh, as root, in a folder that holds `files`."""
    install: tuple[str, ...] = ()
    """Run once more for each commit, as root in the workdir with the repository in place, such as
    `pip install -e .`; what they leave there that git does not know, git is told to ignore."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Extra environment of the commands; the image does not keep it."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by relative path, there during the build only; see `read_files`."""
    network: Literal["bridge", "none"] = "bridge"
    """Whether the commands reach the network."""
    timeout: float = 1800.0
    """Seconds for the build of a layer."""

    def __post_init__(self) -> None:
        for text in (self.base, *self.commands, *self.install):
            if not text.strip() or "\0" in text:
                raise SandboxUsageError(f"a base and commands are text, not {text!r}")
        for name, value in self.environment.items():
            if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
                raise SandboxUsageError(f"{name!r} can't be an environment variable")
        for path in self.files:
            _check_path(path)
        if self.network not in ("bridge", "none"):
            raise SandboxUsageError(f"a recipe's network is bridge or none, not {self.network!r}")
        if not self.timeout > 0:
            raise SandboxUsageError(f"a recipe's timeout is seconds over 0, not {self.timeout!r}")

    def key(self, base_id: str) -> str:
        """24 hex digits that name the layer that `commands` make on the image `base_id`."""
        files = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}
        return digest(base_id, list(self.commands), dict(self.environment), files, self.network)


def digest(*parts: object) -> str:
    """24 hex digits for values that JSON can hold."""
    text = json.dumps([LAYOUT, *parts], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def read_files(repository: Path, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Regular files of a commit by path, for `ImageRecipe.files`. Raises CheckoutError."""
    for path in paths:
        _check_path(path)
    taken = await snapshot(repository, commit)
    return await anyio.to_thread.run_sync(_extract, taken.tar, taken.commit, tuple(paths))


def _extract(tar: bytes, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for path in paths:
            try:
                member = archive.getmember(f"./{path}")
            except KeyError:
                raise CheckoutError(f"no file {path} in commit {commit[:12]}") from None
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                raise CheckoutError(f"{path} in commit {commit[:12]} is no regular file")
            found[path] = stream.read()
    return found


def _check_path(path: str) -> None:
    first = path.split("/")[0]
    if path != posixpath.normpath(path) or first in ("", ".", "..", ".git") or "\0" in path:
        raise SandboxUsageError(f"a recipe's files are relative paths, not {path!r}")
