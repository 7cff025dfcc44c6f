"""The learner: takes groups of sequences, makes one optimizer step, reports what happened.

    groups -> pack -> for each stack of rows: forward, backward, add to gradient -> clip -> AdamW
                                                            (not finite: skip, and say so) ┘

With `updates` above 1 the groups are split, and each part makes an update of its own; a step is all
of them or none. `train` blocks; the caller gives it a thread of its own. Parameters are never
changed in place: the arrays behind `params` stay valid while a sampler reads them, and a step makes
new ones.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .batching import Batch, TrainSequence, pack
from .learner_config import LearnerConfig
from .learner_execution import check_fit, execution_of
from .lora.adapters import init_adapters
from .losses import TokenSums
from .model.config import ModelConfig
from .model.decoder import Params
from .model.execution import Execution
from .optimizer import global_norm, schedule, start, update, update_keeping, updates_so_far
from .parallel.layout import FSDP
from .profiling import stage
from .row_programs import Arrays, Weights, add_rows, merged_weights, row_arrays, row_logprobs
from .stacks import Stack, stack_rows
from .step_report import StepReport, make_report, total_sums
from .token_ids import check_token_ids

__all__ = ["Learner", "LearnerState", "StepInterrupted", "StepReport"]


class StepInterrupted(Exception):
    """A step was given up because the caller asked for it; the learner is as before."""


class LearnerState(NamedTuple):
    """All that a learner must keep to go on exactly where it was."""

    params: Params
    """What is trained: all weights, or adapters."""
    optimizer: Any
    """optax's state; its own update count drives the warm-up."""
    step: jax.Array
    """Optimizer steps applied, int32 scalar."""


class _Update(NamedTuple):
    """What became of one update."""

    sums: TokenSums
    loss: float
    norm: float
    reason: str
    gradient_seconds: float
    update_seconds: float


class Learner:
    """A GRPO learner over a decoder's parameters.

    With `learner.lora` the state holds adapters alone, and `params` is the model they are added to.
    With `learner.mesh` every process of the mesh makes one, from the same weights, and calls it
    with the same batches.
    """

    def __init__(
        self,
        config: LearnerConfig,
        model: ModelConfig,
        params: Params,
        *,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        """Begin from `params`; `execution` is derived from `config` and the devices, `seed` draws
        the adapters. Raises ValueError for rows or a model that don't fit on the mesh."""
        self._config = config
        self._model = model
        self._execution = execution or execution_of(config)
        layout = self._execution.layout
        check_fit(config, model, self._execution)
        self._lanes = 1 if layout is None else layout.size(FSDP)
        weights = Weights(jax.tree.map(jnp.asarray, params))
        if config.lora.rank:
            weights = Weights(init_adapters(config.lora, model, seed), weights.trained)
        if layout is not None:
            frozen = weights.frozen and layout.place(weights.frozen)
            weights = Weights(layout.place(weights.trained), frozen)
        else:  # where later weights will be: programs are compiled for a place, and once is enough
            weights = jax.device_put(weights, jax.local_devices()[0])
        self._frozen = weights.frozen
        self._state = LearnerState(
            params=weights.trained,
            optimizer=start(config, weights.trained, layout),
            step=jnp.zeros((), jnp.int32, device=layout and layout.sharding()),
        )
        # A resumed run makes its learner from the same initial weights, then restores.
        self._reference = weights if config.kl_coefficient > 0 else None
        self._merged: tuple[Params, Params] | None = None
        self._lengths: set[int] = set()
        self._skipped = 0

    @property
    def model(self) -> ModelConfig:
        """The decoder's shape."""
        return self._model

    @property
    def params(self) -> Params:
        """The current model, adapters added; later steps leave these arrays as they are."""
        trained = self._state.params
        if self._frozen is None:
            return trained
        if self._merged is None or self._merged[0] is not trained:
            self._merged = trained, merged_weights(self._execution, self._weights)
        return self._merged[1]

    @property
    def _weights(self) -> Weights:
        return Weights(self._state.params, self._frozen)

    @property
    def step(self) -> int:
        """Optimizer steps applied."""
        return int(self._state.step)

    @property
    def state(self) -> LearnerState:
        """Everything a checkpoint must hold. Save it before the next `train`, which consumes the
        optimizer's arrays."""
        return self._state

    def restore(self, state: LearnerState) -> None:
        """Go on from `state`, whose trees must be those of this learner's `state`."""
        want, got = str(jax.tree.structure(self._state)), str(jax.tree.structure(state))
        if want != got:
            raise ValueError(f"the state has another structure: {got}, not {want}")
        self._state = state

    def train(
        self,
        groups: Sequence[Sequence[TrainSequence]],
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> StepReport:
        """One optimizer step on `groups`; blocks until it is done.

        `should_stop` is asked before each row; once it says yes, the step is given up by raising
        StepInterrupted, and nothing has changed.
        Raises ValueError for a sequence longer than the longest row. A batch with nothing to learn,
        or whose loss or gradient is not finite, changes nothing: `applied` is false.
        """
        started = time.perf_counter()
        with stage("pack"):
            batches = [self.pack(part) for part in _split(groups, self._config.updates)]
        packed = time.perf_counter()
        compiled = len(self._lengths)
        learning_rate = float(schedule(self._config)(updates_so_far(self._state.optimizer)))
        done = self._updates([batch for batch in batches if batch.rows], should_stop)
        reason = (
            done[-1].reason if done else "no sequence has both an advantage and a token to learn"
        )
        self._skipped += bool(done and reason)
        return make_report(
            batches,
            total_sums([one.sums for one in done]),
            step=self.step,
            applied=not reason,
            reason=reason,
            not_finite=bool(done and reason),
            skipped=self._skipped,
            loss=sum(one.loss for one in done) / max(1, len(done)),
            grad_norm=max((one.norm for one in done), default=0.0),
            learning_rate=learning_rate,
            compilations=len(self._lengths) - compiled,
            pack_seconds=packed - started,
            gradient_seconds=sum(one.gradient_seconds for one in done),
            update_seconds=sum(one.update_seconds for one in done),
        )

    def pack(self, groups: Sequence[Sequence[TrainSequence]]) -> Batch:
        """Lay `groups` out as this learner's loss wants them; ValueError for ids that the model
        hasn't got."""
        check_token_ids(groups, self._model.vocabulary)
        return pack(
            groups,
            row_tokens=self._config.row_tokens,
            aggregation=self._config.aggregation,
            share_sampled=not self._config.by_sequence,
            keep_all=self._config.reads_all,
        )

    def gradient(self, batch: Batch) -> tuple[float, Params]:
        """Loss and gradient of `batch`, without a step: what `train` would clip and apply."""
        sums, gradient = self._gradients(batch, None)
        divisor = self._divisor(batch)
        return -float(sums.objective) / divisor, jax.tree.map(lambda g: g / divisor, gradient)

    def logprobs(self, batch: Batch) -> list[npt.NDArray[np.float32]]:
        """Each row's log-probabilities [reads], nats, under the present parameters."""
        found: dict[int, npt.NDArray[np.float32]] = {}
        for stack in self._stacks(batch):
            values = np.asarray(self._stack_logprobs(self._weights, stack))
            found |= dict(zip(stack.places, values, strict=False))
        return [found[place][: row.read] for place, row in enumerate(batch.rows)]

    def _stacks(self, batch: Batch) -> list[Stack]:
        return stack_rows(batch.rows, self._lanes)

    def _divisor(self, batch: Batch) -> float:
        """What the summed loss is divided by."""
        constant = self._config.aggregation == "constant"
        length = self._config.length_normalizer if constant else 1
        return float(max(1, batch.divisor) * length)

    def _updates(self, batches: Sequence[Batch], should_stop: Callable[[], bool]) -> list[_Update]:
        """An update for each of `batches`, the step counted once; all of them or none."""
        before = self._state
        done: list[_Update] = []
        try:
            proximal = self._proximal(batches, should_stop)
            for batch, logprobs in zip(batches, proximal, strict=True):
                done.append(self._update(batch, logprobs, should_stop, first=not done))
                if done[-1].reason:
                    self._state = before
                    return done
        except BaseException:
            self._state = before
            raise
        if done:
            self._state = self._state._replace(step=before.step + 1)
        return done

    def _proximal(
        self, batches: Sequence[Batch], should_stop: Callable[[], bool]
    ) -> list[list[jax.Array] | None]:
        """The learner's log-probabilities before the first update, by stack, where they are
        read."""
        if self._config.proximal == "sampler":
            return [None] * len(batches)
        weights = self._weights
        found: list[list[jax.Array] | None] = []
        for batch in batches:
            values = []
            for stack in self._stacks(batch):
                self._go_on(should_stop)
                values.append(self._stack_logprobs(weights, stack))
            found.append(values)
        return found

    def _stack_logprobs(self, weights: Weights, stack: Stack) -> jax.Array:
        arrays: Any = row_arrays(stack.rows, self._execution)
        found: jax.Array = row_logprobs(self._model, self._execution, weights, arrays)
        return found

    def _go_on(self, should_stop: Callable[[], bool]) -> None:
        if should_stop():
            raise StepInterrupted(f"step {self.step + 1} was given up")

    def _update(
        self,
        batch: Batch,
        proximal: Sequence[jax.Array] | None,
        should_stop: Callable[[], bool],
        *,
        first: bool,
    ) -> _Update:
        started = time.perf_counter()
        with stage("gradient"):
            sums, gradient = self._gradients(batch, proximal, should_stop)
            loss = -float(sums.objective) / self._divisor(batch)
        differentiated = time.perf_counter()
        keep = first and self._config.updates > 1
        with stage("update"):
            norm, reason = self._apply(batch, gradient, loss, keep=keep)
        finished = time.perf_counter()
        return _Update(
            sums, loss, norm, reason, differentiated - started, finished - differentiated
        )

    def _gradients(
        self,
        batch: Batch,
        proximal: Sequence[jax.Array] | None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> tuple[TokenSums, Params]:
        """Sums and undivided gradient over all rows; the gradient is accumulated in float32."""
        weights = self._weights
        gradient: Params = jax.tree.map(
            lambda p: jnp.zeros(p.shape, jnp.float32, device=p.sharding), weights.trained
        )
        sums = []
        for index, stack in enumerate(self._stacks(batch)):
            self._go_on(should_stop)
            self._lengths.add(stack.length)
            arrays: Any = self._arrays(stack, None if proximal is None else proximal[index])
            gradient, added = add_rows(
                self._config, self._model, self._execution, weights, gradient, arrays
            )
            # Waiting here keeps one row's activations in memory, not several.
            sums.append(jax.device_get(added))
        return total_sums(sums), gradient

    def _arrays(self, stack: Stack, proximal: jax.Array | None) -> Arrays:
        arrays = row_arrays(stack.rows, self._execution)
        if proximal is not None:
            arrays["proximal_logprobs"] = proximal
        if self._reference is not None:
            arrays["reference_logprobs"] = self._stack_logprobs(self._reference, stack)
        return arrays

    def _apply(
        self, batch: Batch, gradient: Params, loss: float, *, keep: bool
    ) -> tuple[float, str]:
        """Apply the gradient; returns its norm, and the reason when it was not applied."""
        if not np.isfinite(loss):
            return float("nan"), f"the loss is {loss}"
        norm = float(global_norm(gradient)) / self._divisor(batch)
        if not np.isfinite(norm):
            return norm, f"the gradient's norm is {norm}"
        scale = min(1.0, self._config.max_grad_norm / max(norm, 1e-30)) / self._divisor(batch)
        params, optimizer = (update_keeping if keep else update)(
            self._config, self._state.params, self._state.optimizer, gradient, np.float32(scale)
        )
        self._state = LearnerState(params, optimizer, self._state.step)
        jax.block_until_ready(params)
        return norm, ""


def _split(
    groups: Sequence[Sequence[TrainSequence]], parts: int
) -> list[Sequence[Sequence[TrainSequence]]]:
    """`groups` in `parts` runs of neighbours whose sizes differ by at most one."""
    size = len(groups)
    return [groups[i * size // parts : (i + 1) * size // parts] for i in range(parts)]
