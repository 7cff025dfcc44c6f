"""What can be set about the agents for whole repositories."""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.agent.chat import FamilyName

SYSTEM = """\
You fix bugs in a repository by calling tools. Work like this: read the issue, find the code that \
it is about, reproduce the problem, change the source as little as needed, and run the tests that \
concern it. Look before you edit. Do not change tests to make them pass. Say in a sentence or two \
what you are about to do, then call a tool and wait for its answer. When the problem is fixed and \
checked, hand your work in."""
"""Of `ToolAgent`."""

BASH_SYSTEM = """\
You fix bugs in a repository by running shell commands. Work like this: read the issue, find the \
code that it is about, reproduce the problem, change the source as little as needed, and run the \
tests that concern it. Look before you edit. Do not change tests to make them pass.

In each turn say in a sentence or two what you are about to do, then write exactly one command in \
a ```bash block and end your turn; its output is shown to you next. Each command runs in a shell \
of its own, so `cd` does not last. When the problem is fixed and checked, write the one line \
`submit` without a block."""
"""Of `BashAgent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaffoldConfig:
    """How an agent speaks to its model."""

    observation_tokens: int = 2048
    """Tokens that the observations of one turn may have together; head and tail are kept."""
    keep_observations: int = 0
    """When a context would not fit: how many of the newest turns' observations stay whole, the
    older ones become one line each and a new segment begins. 0 never rewrites."""
    family: FamilyName = "auto"
    """The format of tool calls; `auto` asks the chat template. `BashAgent` has no use for it."""
    system: str = ""
    """System prompt in place of the scaffold's own."""
    example: bool = True
    """Show one step as an example in the system prompt."""

    def __post_init__(self) -> None:
        """ValueError for what makes no sense."""
        if self.observation_tokens < 64:
            raise ValueError("observation_tokens must be 64 at least: less says nothing")
        if self.keep_observations < 0:
            raise ValueError("keep_observations must be 0 (keep all) or more")
