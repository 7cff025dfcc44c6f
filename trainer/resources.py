"""What a run holds open: the sandbox pool, the sampler, the learner, and its checkpoints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.lowlevel
import anyio.to_thread

from patchgym.agent import RepairAgent
from patchgym.datasets.cache import cache_dir, repositories_dir
from patchgym.datasets.task import Task
from patchgym.rewards import JudgeConfig, Verdict, judge
from patchgym.sandbox import Pool, SandboxSpec, ensure_base

from .config import RunConfig
from .errors import RunStopped
from .idle import StageBoard
from .pipeline import PipelineParts
from .preflight import ValidationCache, preflight
from .progress import Progress
from .run_folder import RunFolder
from .task_sets import check_disjoint, check_images, load_task_set

if TYPE_CHECKING:
    from .batching import TrainSequence
    from .checkpoint import CheckpointStore
    from .learner import Learner
    from .model.config import ModelConfig
    from .model.decoder import Params
    from .model.tokenizer import Tokenizer
    from .sampler import JaxSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The part that needs no model: a pool, and tasks that were validated in it."""

    pool: Pool
    image: str
    train: tuple[Task, ...]
    heldout: tuple[Task, ...]


@dataclass(slots=True, kw_only=True)
class Resources:
    """Open for as long as the run lasts."""

    policy: JaxSampler
    learner: Learner
    agent: RepairAgent
    pool: Pool
    train_tasks: tuple[Task, ...]
    heldout_tasks: tuple[Task, ...]
    checkpoints: CheckpointStore
    stopped: Callable[[], bool]
    lease_timeout: float
    tests_timeout: float
    reruns: int
    board: StageBoard = field(default_factory=StageBoard)
    _saved: int = -1
    _rates: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))

    def pipeline_parts(self) -> PipelineParts:
        """What rollouts need."""
        return PipelineParts(
            policy=self.policy,
            agent=self.agent,
            pool=self.pool,
            judge=self._judge,
            repositories=repositories_dir(),
            board=self.board,
        )

    async def train(self, batch: Sequence[Sequence[TrainSequence]]) -> dict[str, object]:
        """One update in a worker thread; its report as a mapping."""
        from .learner import StepInterrupted

        step = partial(self.learner.train, batch, should_stop=self.stopped)
        try:
            return asdict(await anyio.to_thread.run_sync(step))
        except StepInterrupted as error:
            await anyio.lowlevel.checkpoint()  # the run is being stopped: this is where it ends
            raise RunStopped(str(error)) from None

    async def publish(self) -> None:
        """Give the sampler the learner's weights; running turns finish on those they began with."""
        await self.policy.publish(self.learner.params, self.learner.step)

    async def save(self) -> None:
        """Write a checkpoint of the present step, once."""
        if self._saved == self.learner.step:
            return
        await anyio.to_thread.run_sync(self.checkpoints.save, self.learner)
        self._saved = self.learner.step

    def token_rate(self, total: int) -> float:
        """Sampled tokens a second over the last ten seconds or so."""
        self._rates.append((time.monotonic(), total))
        (start, before), (end, now) = self._rates[0], self._rates[-1]
        return (now - before) / (end - start) if end > start else 0.0

    async def _judge(self, task: Task, diff: bytes) -> Verdict:
        config = JudgeConfig(
            repositories=repositories_dir(),
            tests_timeout=self.tests_timeout,
            lease_timeout=self.lease_timeout,
            reruns=self.reruns,
        )
        return await judge(task, diff, self.pool, config)


async def open_pool(config: RunConfig, progress: Progress, stack: AsyncExitStack) -> Checked:
    """Image, pool and validated tasks; the pool closes with `stack`."""
    train, heldout = load_task_set(config.tasks.train), load_task_set(config.tasks.heldout)
    check_disjoint(train, heldout)
    progress.enter("preparing the sandbox image")
    image = config.sandbox.image
    if image == "auto":
        image = await ensure_base()
    check_images((*train, *heldout), image)
    spec = SandboxSpec(image=image, memory_mib=config.sandbox.memory_mib)
    progress.enter("filling the sandbox pool")
    pool = await stack.enter_async_context(Pool(spec, size=config.sandbox.slots))
    progress.enter("validating tasks: the gold patch passes, the empty patch fails")
    await preflight(
        (*train, *heldout),
        pool,
        image_id=image,
        cache=ValidationCache(cache_dir() / "validated.json"),
        jobs=config.sandbox.slots,
        progress=progress.advance,
    )
    return Checked(pool=pool, image=image, train=train, heldout=heldout)


def _load_model(name: str) -> tuple[ModelConfig, Params, Tokenizer]:
    from .model.load import load_model
    from .model.weights import ensure_weights

    named = name.lower() == "smollm2-135m-instruct"
    return load_model(ensure_weights(cache_dir()) if named else Path(name))


def _make_learner(
    config: RunConfig, folder: RunFolder, model: ModelConfig, params: Params, resume: bool
) -> tuple[Learner, CheckpointStore]:
    """The learner at its first step, or where the last checkpoint left it."""
    from .checkpoint import CheckpointStore
    from .learner import Learner

    learner = Learner(config.learner, model, params)
    checkpoints = CheckpointStore(folder.checkpoints, keep=config.checkpoint.keep)
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
) -> Resources:
    """Everything a run needs, at its first step or at its last checkpoint."""
    checked = await open_pool(config, progress, stack)
    progress.enter("loading the model")
    # JAX takes a second to import: not before it is needed, and never on the event loop.
    model, params, tokenizer = await anyio.to_thread.run_sync(_load_model, config.model.path)
    learner, checkpoints = await anyio.to_thread.run_sync(
        _make_learner, config, folder, model, params, resume
    )
    from .sampler import JaxSampler

    # pyright reaches these classes under two names, `trainer.*` and, by the link, `patchgym.*`.
    policy = JaxSampler(
        config.sampler,  # pyright: ignore[reportArgumentType]
        model,  # pyright: ignore[reportArgumentType]
        learner.params,
        tokenizer,  # pyright: ignore[reportArgumentType]
        version=learner.step,
    )
    await stack.enter_async_context(policy)
    return Resources(
        policy=policy,
        learner=learner,
        agent=RepairAgent(tokenizer),
        pool=checked.pool,
        train_tasks=checked.train,
        heldout_tasks=checked.heldout,
        checkpoints=checkpoints,
        stopped=stopped,
        lease_timeout=config.sandbox.lease_timeout,
        tests_timeout=config.sandbox.tests_timeout,
        reruns=config.scoring.reruns,
    )
