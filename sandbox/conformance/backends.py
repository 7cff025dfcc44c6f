"""Back ends by name, for the command line: docker, local, or anybody's MODULE:FACTORY."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, cast

from patchgym.sandbox import LocalPool, Pool, SandboxSpec, SandboxUsageError, ensure_base

from .contract import Backend, Claiming

Supervisor = Literal["auto", "static", "python"]
SIZE = 2  # the checks hold two leases at one time


def spec(image: str, supervisor: Supervisor = "auto") -> SandboxSpec:
    """Small limits, so that reaching them is quick."""
    return SandboxSpec(
        image=image, memory_mib=96, disk_mib=32, pids=64, cpus=2.0, supervisor=supervisor
    )


def named(
    name: str, image: str | None = None, supervisor: Supervisor = "auto"
) -> AbstractAsyncContextManager[Backend]:
    """The back end called `name`, to be entered. Raises SandboxUsageError when there is none.

    `image` (a tag; built-in base image when None) and `supervisor` are for docker alone.
    """
    if name == "docker":
        return _docker(image, supervisor)
    if name == "local":
        return LocalPool(spec("none"), size=SIZE)
    module, colon, factory = name.partition(":")
    if not (colon and module and factory):
        raise SandboxUsageError(f"a back end is docker, local or MODULE:FACTORY, not {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        make = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as problem:
        raise SandboxUsageError(f"no back end {name}: {problem}") from problem
    return cast("AbstractAsyncContextManager[Backend]", make())


@asynccontextmanager
async def _docker(image: str | None, supervisor: Supervisor) -> AsyncIterator[Backend]:
    tag = image or await ensure_base()
    async with Pool(spec(tag, supervisor), size=SIZE) as pool:
        yield Claiming(pool)
