"""Sandboxes: disposable Docker containers from a warm pool, in which untrusted code may run.

Knows no task and no model; usable alone. Importing it does no I/O and does not import docker.
"""

from .attach import Endpoint
from .blocking import BlockingPool, BlockingSandbox
from .checkout import Snapshot, snapshot
from .container import Sandbox, SandboxSnapshot
from .engine import ContainerInfo, Engine, ImageInfo
from .errors import (
    CheckoutError,
    EngineUnavailable,
    ImageError,
    LeaseTimeout,
    PatchError,
    PatchgymError,
    SandboxError,
    SandboxLost,
    SandboxUnavailable,
    SandboxUsageError,
)
from .images.access import BuildAccess
from .images.base import ensure_base
from .images.mirror import mirror
from .images.recipe import ImageRecipe, read_files
from .images.store import BakedImage, ImageStore
from .images.survey import StoredImage
from .local import LocalPool
from .patch import AppliedPatch, inspect_diff
from .pool import Pool
from .pool_core import HostStatistics, PoolStatistics
from .process import Process
from .reaper import Owner, sweep
from .result import CommandResult, Output
from .spec import SandboxSpec
from .testing import Outcome, TestReport, run_tests

__all__ = [
    "AppliedPatch",
    "BakedImage",
    "BlockingPool",
    "BlockingSandbox",
    "BuildAccess",
    "CheckoutError",
    "CommandResult",
    "ContainerInfo",
    "Endpoint",
    "Engine",
    "EngineUnavailable",
    "HostStatistics",
    "ImageError",
    "ImageInfo",
    "ImageRecipe",
    "ImageStore",
    "LeaseTimeout",
    "LocalPool",
    "Outcome",
    "Output",
    "Owner",
    "PatchError",
    "PatchgymError",
    "Pool",
    "PoolStatistics",
    "Process",
    "Sandbox",
    "SandboxError",
    "SandboxLost",
    "SandboxSnapshot",
    "SandboxSpec",
    "SandboxUnavailable",
    "SandboxUsageError",
    "Snapshot",
    "StoredImage",
    "TestReport",
    "ensure_base",
    "inspect_diff",
    "mirror",
    "read_files",
    "run_tests",
    "snapshot",
    "sweep",
]
