"""What a sandbox must do, as checks that anyone can hold a back end of their own to.

    report = await check(backend)           # anything that is a `Backend`
    python -m patchgym.sandbox.conformance  # the same, as a table

A back end claims capabilities and is held to all checks of those; the others are listed as not
claimed. Each check gets leases of its own, so their order plays no part. No pytest is needed.
See docs/conformance.md.
"""

from .contract import CAPABILITIES, Backend, Capability, Claiming, ProcessLike, SandboxLike
from .report import Finding, Report, check
from .suite import CHECKS, Check

__all__ = [
    "CAPABILITIES",
    "CHECKS",
    "Backend",
    "Capability",
    "Check",
    "Claiming",
    "Finding",
    "ProcessLike",
    "Report",
    "SandboxLike",
    "check",
]
