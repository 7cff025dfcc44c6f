"""The quickstart's scaffold: one function with a bug, one answer a turn."""

from .agent import RepairAgent
from .environment import LeaseFactory, RepairConfig, RepairEnvironment

__all__ = ["LeaseFactory", "RepairAgent", "RepairConfig", "RepairEnvironment"]
