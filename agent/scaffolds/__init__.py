"""Agents for whole repositories: with the model's own tool calls, or with nothing but a shell."""

from .bash_agent import BashAgent
from .config import BASH_SYSTEM, SYSTEM, ScaffoldConfig
from .factory import ScaffoldName, make_agent
from .tool_agent import ToolAgent

__all__ = [
    "BASH_SYSTEM",
    "SYSTEM",
    "BashAgent",
    "ScaffoldConfig",
    "ScaffoldName",
    "ToolAgent",
    "make_agent",
]
