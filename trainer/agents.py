"""Which agent a run's rollouts have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast, get_args

from patchgym.agent import Agent, AgentFactory
from patchgym.agent.chat import ChatTokenizer
from patchgym.agent.scaffolds import ScaffoldName, make_agent

from .config import RunConfig
from .domain import load_attribute
from .errors import ConfigError


def make_agents(config: RunConfig, tokenizer: ChatTokenizer) -> AgentFactory:
    """What makes the agent of each rollout; ConfigError when the scaffold is unknown."""
    section = config.agent
    scaffold = section.scaffold
    if scaffold == "auto":
        scaffold = "repair" if config.environment.use == "repair" else "tools"
    if scaffold in get_args(ScaffoldName):
        return make_agent(cast(ScaffoldName, scaffold), tokenizer, section)
    if ":" not in scaffold:
        known = ", ".join(get_args(ScaffoldName))
        raise ConfigError(f"agent.scaffold: no scaffold {scaffold!r}: there are {known}")
    make: Callable[[ChatTokenizer], Agent] = load_attribute(scaffold, "agent.scaffold")
    return partial(make, tokenizer)
