"""What a run holds open: its domain, the sampler, the learner, and its checkpoints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio.lowlevel
import anyio.to_thread

from patchgym.agent import AgentFactory, Policy

from .admission import Admission
from .agents import make_agents
from .config import RunConfig, check_trainable
from .domain import Domain, DomainFactory, load_attribute
from .errors import ConfigError, RunStopped
from .idle import StageBoard
from .pipeline import PipelineParts, Rollouts
from .policies import model_path
from .profiling import step as profiled_step
from .progress import Progress
from .repositories import open_repositories
from .run_folder import RunFolder

if TYPE_CHECKING:
    from .batching import TrainSequence
    from .checkpoint import CheckpointStore
    from .learner import Learner
    from .model.config import ModelConfig
    from .model.decoder import Params
    from .model.tokenizer import Tokenizer
    from .multihost.hosts import Hosts


class Trainee(Policy, Protocol):
    """A policy that takes the learner's weights."""

    async def publish(self, params: Any, version: int) -> None:
        """Begin turns on these weights from now on."""
        ...

    def statistics(self) -> Sampled:
        """Counts since the start."""
        ...


class Sampled(Protocol):
    """What a run reads of a policy's statistics."""

    @property
    def sampled_tokens(self) -> int:
        """Tokens of all completions so far."""
        ...


@dataclass(slots=True, kw_only=True)
class Resources:
    """Open for as long as the run lasts."""

    policy: Trainee
    learner: Learner
    agents: AgentFactory
    domain: Domain
    checkpoints: CheckpointStore | None
    """None writes none."""
    stopped: Callable[[], bool]
    admission: Admission
    board: StageBoard = field(default_factory=StageBoard)
    model: str = ""
    """The policy's name in spans."""
    rollouts: Rollouts | None = None
    """None acts them in this process."""
    reward: float | None = None
    """The last step's `step_reward`, by which its checkpoint is ranked."""
    _saved: int = -1
    _rates: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))

    def pipeline_parts(self) -> PipelineParts:
        """What rollouts need."""
        return PipelineParts(
            policy=self.policy,
            agents=self.agents,
            domain=self.domain,
            board=self.board,
            admission=self.admission,
            model=self.model,
            rollouts=self.rollouts,
        )

    async def train(self, batch: Sequence[Sequence[TrainSequence]]) -> dict[str, object]:
        """One update in a worker thread; its report as a mapping."""
        from .learner import StepInterrupted

        def update() -> dict[str, object]:
            with profiled_step(self.learner.step):
                return asdict(self.learner.train(batch, should_stop=self.stopped))

        try:
            return await anyio.to_thread.run_sync(update)
        except StepInterrupted as error:
            await anyio.lowlevel.checkpoint()  # the run is being stopped: this is where it ends
            raise RunStopped(str(error)) from None

    async def publish(self) -> None:
        """Give the sampler the learner's weights; running turns finish on those they began with."""
        params = await anyio.to_thread.run_sync(self._params)
        await self.policy.publish(params, self.learner.step)

    def _params(self) -> Params:
        return self.learner.params

    async def save(self, *, wait: bool = True) -> None:
        """Write a checkpoint of the present step, once; without `wait` it is written meanwhile."""
        if self.checkpoints is not None:
            await anyio.to_thread.run_sync(self._save, self.checkpoints, wait)

    def _save(self, checkpoints: CheckpointStore, wait: bool) -> None:
        step = self.learner.step
        if self._saved != step:
            if self.reward is not None:
                checkpoints.note(step, "reward", self.reward)
            checkpoints.save(self.learner, wait=False)
            self._saved = step
        if wait:
            checkpoints.wait()

    async def measured(self, step: int, pass_rate: float) -> None:
        """Rank the checkpoint of `step`, if there is or will be one, by its held-out pass rate."""
        if self.checkpoints is not None:
            note = partial(self.checkpoints.note, step, "heldout", pass_rate)
            await anyio.to_thread.run_sync(note)

    def measuring(self, step: int) -> None:
        """A held-out evaluation of `step` begins: its checkpoint stays until it is measured."""
        if self.checkpoints is not None:
            self.checkpoints.hold(step)

    def token_rate(self, total: int) -> float:
        """Sampled tokens a second over the last ten seconds or so."""
        self._rates.append((time.monotonic(), total))
        (start, before), (end, now) = self._rates[0], self._rates[-1]
        return (now - before) / (end - start) if end > start else 0.0


async def open_domain(
    config: RunConfig, progress: Progress, stack: AsyncExitStack
) -> tuple[Domain, str]:
    """What the run trains on, and a line about it for people; it closes with `stack`."""
    use = config.environment.use
    if config.ray.address:
        from .ray.domain import open_ray

        return await open_ray(config, progress, stack), f"environment {use} on {config.ray.address}"
    if use in ("repair", "repository"):
        repositories = await open_repositories(config, progress, stack)
        return repositories, f"image {repositories.image}; all tasks valid"
    progress.enter(f"opening {use}")
    make: DomainFactory = load_attribute(use, "environment.use")
    domain: Any = make(config.environment.settings)
    if hasattr(domain, "__aenter__"):
        domain = await stack.enter_async_context(domain)
    return domain, f"environment {use}"


def _load_model(name: str) -> tuple[ModelConfig, Params, Tokenizer]:
    from .model.load import load_model

    return load_model(model_path(name))


def _make_learner(
    config: RunConfig,
    folder: RunFolder,
    model: ModelConfig,
    params: Params,
    resume: bool,
    hosts: Hosts | None = None,
) -> tuple[Learner, CheckpointStore]:
    """The learner at its first step, or where the last checkpoint left it."""
    check_trainable(config)
    from .checkpoint import CheckpointStore
    from .learner import Learner

    learner: Learner
    checkpoints: CheckpointStore
    section = config.checkpoint
    try:
        if hosts is not None:
            from .multihost.leading import lead

            learner, checkpoints = lead(hosts, config, folder, model, params)
        else:
            learner = Learner(config.learner, model, params, seed=config.run.seed)
            checkpoints = CheckpointStore(folder.checkpoints, keep=section.keep, best=section.best)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if resume:
        checkpoints.restore(learner)
    return learner, checkpoints


async def open_resources(
    config: RunConfig,
    folder: RunFolder,
    progress: Progress,
    stack: AsyncExitStack,
    *,
    resume: bool,
    stopped: Callable[[], bool],
    hosts: Hosts | None = None,
) -> Resources:
    """Everything a run needs, at its first step or at its last checkpoint."""
    domain, _ = await open_domain(config, progress, stack)
    progress.enter("loading the model")
    # JAX takes a second to import: not before it is needed, and never on the event loop.
    model, params, tokenizer = await anyio.to_thread.run_sync(_load_model, config.model.path)
    learner, checkpoints = await anyio.to_thread.run_sync(
        _make_learner, config, folder, model, params, resume, hosts
    )
    if hosts is not None:
        group = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(group.cancel_scope.cancel)
        group.start_soon(hosts.watch)
    from .samplers import open_sampler

    weights = await anyio.to_thread.run_sync(lambda: learner.params)
    loaded: Any = model, weights, tokenizer
    policy = await open_sampler(config, *loaded, version=learner.step, stack=stack)
    name = Path(config.model.path).name
    rollouts = await _remote(domain, policy, tokenizer, name) if config.ray.address else None
    return Resources(
        policy=policy,
        learner=learner,
        agents=make_agents(config, tokenizer),
        domain=domain,
        checkpoints=checkpoints,
        stopped=stopped,
        admission=Admission(config.rollout.in_flight),
        model=name,
        rollouts=rollouts,
    )


async def _remote(domain: Domain, policy: Trainee, tokenizer: Tokenizer, model: str) -> Rollouts:
    """Rollouts on the hosts of a Ray cluster."""
    from .ray.domain import RayDomain, RayRollouts

    assert isinstance(domain, RayDomain)
    rollouts = RayRollouts(domain=domain, policy=policy, model=model)
    await rollouts.equip(tokenizer)
    return rollouts
