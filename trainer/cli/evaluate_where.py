"""Where the rollouts of `patchgym evaluate --policy` are acted: here, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from patchgym.datasets.task import Task
from patchgym.rewards import RewardConfig
from patchgym.trainer.agent_evaluation import AgentSettings, agent_section
from patchgym.trainer.config import EnvironmentSection, RunConfig, SandboxSection, ScoringSection
from patchgym.trainer.domain import Domain
from patchgym.trainer.pipeline import Rollouts
from patchgym.trainer.policies import OpenedPolicy
from patchgym.trainer.ray import RaySection
from patchgym.trainer.repositories import image_name, open_task_domain

from .evaluate_policy_view import PolicyView


async def open_where(
    address: str,
    tasks: Sequence[Task],
    settings: AgentSettings,
    opened: OpenedPolicy,
    *,
    sandbox: SandboxSection,
    scoring: ScoringSection,
    view: PolicyView,
    stack: AsyncExitStack,
) -> tuple[Domain, Rollouts | None]:
    """The domain over `tasks`, and where it is not this process, what acts in it; both close with
    `stack`. `address` is a cluster's, or empty. Raises what opening a domain raises."""
    reward = RewardConfig.of()
    if not address:
        local = await open_task_domain(
            (),
            tasks,
            kind=settings.environment,
            sandbox=sandbox,
            scoring=scoring,
            reward=reward,
            stack=stack,
        )
        return local, None
    from patchgym.trainer.ray.domain import RayRollouts, open_ray_tasks

    config = RunConfig(
        environment=EnvironmentSection(use=settings.environment),
        agent=agent_section(settings, opened),
        sandbox=sandbox,
        scoring=scoring,
        reward=reward,
        ray=RaySection(address=address),
    )

    def enter(words: str) -> None:
        view.doing = words

    domain = await open_ray_tasks(
        config,
        (),
        tasks,
        lambda task: image_name(task, sandbox.image),
        enter=enter,
        tell=view.say,
        stack=stack,
    )
    rollouts = RayRollouts(domain=domain, policy=opened.policy, model=opened.model)
    await rollouts.equip(opened.tokenizer)
    return domain, rollouts
