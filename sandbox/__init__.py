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
from .linting import (
    Bandit,
    Choice,
    DetectSecrets,
    DiffFormatter,
    Edit,
    Finding,
    Formatter,
    Linter,
    LintReport,
    Problem,
    Reading,
    Ruff,
    RuffFormat,
    SarifLinter,
    Semgrep,
    Skipped,
    Tool,
    Unformatted,
    UnreadableOutput,
    autopep8,
    black,
    default_linters,
    ensure_lint_image,
    formatter_of,
    lint,
    lint_recipe,
    lint_spec,
    read_sarif,
    yapf,
)
from .local import LocalPool
from .patch import AppliedPatch, inspect_diff
from .pool import Pool
from .pool_core import HostStatistics, PoolStatistics
from .process import Process
from .reaper import Owner, sweep
from .result import CommandResult, Output
from .spec import SandboxSpec
from .testing import (
    Flake,
    Outcome,
    Suspicion,
    TestCommand,
    TestReport,
    TestRun,
    run_tests,
    wilson,
)

__all__ = [
    "AppliedPatch",
    "BakedImage",
    "Bandit",
    "BlockingPool",
    "BlockingSandbox",
    "BuildAccess",
    "CheckoutError",
    "Choice",
    "CommandResult",
    "ContainerInfo",
    "DetectSecrets",
    "DiffFormatter",
    "Edit",
    "Endpoint",
    "Engine",
    "EngineUnavailable",
    "Finding",
    "Flake",
    "Formatter",
    "HostStatistics",
    "ImageError",
    "ImageInfo",
    "ImageRecipe",
    "ImageStore",
    "LeaseTimeout",
    "LintReport",
    "Linter",
    "LocalPool",
    "Outcome",
    "Output",
    "Owner",
    "PatchError",
    "PatchgymError",
    "Pool",
    "PoolStatistics",
    "Problem",
    "Process",
    "Reading",
    "Ruff",
    "RuffFormat",
    "Sandbox",
    "SandboxError",
    "SandboxLost",
    "SandboxSnapshot",
    "SandboxSpec",
    "SandboxUnavailable",
    "SandboxUsageError",
    "SarifLinter",
    "Semgrep",
    "Skipped",
    "Snapshot",
    "StoredImage",
    "Suspicion",
    "TestCommand",
    "TestReport",
    "TestRun",
    "Tool",
    "Unformatted",
    "UnreadableOutput",
    "autopep8",
    "black",
    "default_linters",
    "ensure_base",
    "ensure_lint_image",
    "formatter_of",
    "inspect_diff",
    "lint",
    "lint_recipe",
    "lint_spec",
    "mirror",
    "read_files",
    "read_sarif",
    "run_tests",
    "snapshot",
    "sweep",
    "wilson",
    "yapf",
]
