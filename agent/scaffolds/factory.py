"""Agents by name, as a configuration asks for them."""

from __future__ import annotations

from typing import Literal

from patchgym.agent.agent import AgentFactory
from patchgym.agent.chat import ChatTokenizer, find_family
from patchgym.agent.repair import RepairAgent

from .bash_agent import BashAgent
from .config import ScaffoldConfig
from .tool_agent import ToolAgent

ScaffoldName = Literal["repair", "tools", "bash"]
"""`repair`: one function, one answer; `tools`: whatever the environment offers; `bash`: a shell."""


def make_agent(
    scaffold: ScaffoldName, tokenizer: ChatTokenizer, config: ScaffoldConfig | None = None
) -> AgentFactory:
    """What makes the agent of each rollout; the chat template is asked once, here."""
    settings = config or ScaffoldConfig()
    if scaffold == "repair":
        return lambda: RepairAgent(tokenizer)
    if scaffold == "bash":
        return lambda: BashAgent(tokenizer, settings)
    if scaffold == "tools":
        family = find_family(tokenizer, settings.family)
        return lambda: ToolAgent(tokenizer, settings, family=family)
    raise ValueError(f"no scaffold {scaffold!r}; there are repair, tools and bash")
