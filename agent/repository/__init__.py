"""A whole repository in a sandbox, and tools to work on it: shell, view, edit, tests, submit."""

from .config import RepositoryConfig
from .environment import RepositoryEnvironment
from .lease import LeaseFactory, SandboxSource, lease_repository
from .visible import visible_tests

__all__ = [
    "LeaseFactory",
    "RepositoryConfig",
    "RepositoryEnvironment",
    "SandboxSource",
    "lease_repository",
    "visible_tests",
]
