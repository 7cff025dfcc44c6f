"""The learner: takes groups of sequences, makes one optimizer step, reports what happened.

    groups -> pack -> for each row: forward, backward, add to the gradient -> clip -> AdamW
                                                       (not finite: skip, and say so) ┘

`train` blocks; the caller gives it a thread of its own. Parameters are never changed in place: the
arrays behind `params` stay valid while a sampler reads them, and a step makes new ones.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from .batching import Batch, Row, TrainSequence, pack
from .learner_config import LearnerConfig
from .losses import TokenSums, token_logprobs, token_sums
from .model.config import ModelConfig
from .model.decoder import Params, head_weight, hidden_states

_HEAD_CHUNK = 128
"""Positions whose logits exist at a time. Fewer waste less of the last piece; more write the head's
gradient less often. Memory: 8 x vocabulary bytes a position."""


class StepInterrupted(Exception):
    """A step was given up because the caller asked for it; the learner is as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one call of `train` did. Means are over loss tokens, a shared one once a sequence."""

    step: int
    """Optimizer steps applied so far, this one included."""
    applied: bool
    """False: nothing to learn, or a loss or gradient that is not finite; then the weights and the
    optimizer are as they were."""
    reason: str
    """Why it was not applied; empty when it was."""
    loss: float
    """Negated surrogate over (sequences x length_normalizer)."""
    grad_norm: float
    """Global norm before clipping."""
    learning_rate: float
    """Step size of this step."""
    entropy: float
    """Mean entropy of the learner's distribution, nats a token."""
    mean_ratio: float
    """Mean of learner probability over sampler probability."""
    clipped_fraction: float
    """Share of loss tokens whose gradient the clip removed, 0 to 1."""
    mismatch_kl: float
    """Nats a token, estimate of KL(sampler || learner). At staleness 0 anything above about 1e-3
    means that sampler and learner don't hold the same weights."""
    mismatch_mean: float
    """Nats: mean of |learner's - sampler's log-probability| over the loss tokens."""
    mismatch_max: float
    """Nats: the largest of these differences."""
    sequences: int
    """Trajectories handed over."""
    loss_tokens: int
    """Masked tokens trained on."""
    flat_tokens: int
    """Tokens of the trained sequences, one by one."""
    tree_tokens: int
    """The same with prefixes shared."""
    padded_tokens: int
    """Tokens computed, padding included."""
    rows: int
    """Rows computed."""
    compilations: int
    """Row lengths compiled during this call."""
    pack_seconds: float
    """Laying the rows out."""
    gradient_seconds: float
    """Forward and backward passes, compilations included."""
    update_seconds: float
    """Clipping and the optimizer."""


class LearnerState(NamedTuple):
    """All that a learner must keep to go on exactly where it was."""

    params: Params
    optimizer: Any
    """optax's state; its own step count drives the warm-up."""
    step: jax.Array
    """Optimizer steps applied, int32 scalar."""


class Learner:
    """One-step-a-batch GRPO learner over a decoder's parameters."""

    def __init__(self, config: LearnerConfig, model: ModelConfig, params: Params) -> None:
        self._config = config
        self._model = model
        params = jax.tree.map(jnp.asarray, params)
        self._state = LearnerState(
            params=params,
            optimizer=_start(config, params),
            step=jnp.zeros((), jnp.int32),
        )
        self._lengths: set[int] = set()

    @property
    def model(self) -> ModelConfig:
        """The decoder's shape."""
        return self._model

    @property
    def params(self) -> Params:
        """The current parameters; later steps leave these arrays as they are."""
        return self._state.params

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
        batch = pack(groups, row_tokens=self._config.row_tokens)
        packed = time.perf_counter()
        compiled = len(self._lengths)
        sums, gradient = self._gradients(batch, should_stop)
        loss = -float(sums.objective) / self._divisor(batch)
        differentiated = time.perf_counter()
        learning_rate = float(_schedule(self._config)(self._state.step))
        norm, reason = self._step(batch, gradient, loss)
        return _report(
            batch,
            sums,
            step=self.step,
            applied=not reason,
            reason=reason,
            loss=loss,
            grad_norm=norm,
            learning_rate=learning_rate,
            compilations=len(self._lengths) - compiled,
            pack_seconds=packed - started,
            gradient_seconds=differentiated - packed,
            update_seconds=time.perf_counter() - differentiated,
        )

    def gradient(self, batch: Batch) -> tuple[float, Params]:
        """Loss and gradient of `batch`, without a step: what `train` would clip and apply."""
        sums, gradient = self._gradients(batch)
        divisor = self._divisor(batch)
        return -float(sums.objective) / divisor, jax.tree.map(lambda g: g / divisor, gradient)

    def _divisor(self, batch: Batch) -> float:
        """What the summed loss is divided by: sequences x the constant length."""
        return float(max(1, batch.sequences) * self._config.length_normalizer)

    def _gradients(
        self, batch: Batch, should_stop: Callable[[], bool] = lambda: False
    ) -> tuple[TokenSums, Params]:
        """Sums and undivided gradient over all rows; the gradient is accumulated in float32."""
        params = self._state.params
        gradient: Params = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        sums = [np.zeros(len(TokenSums._fields))]
        for row in batch.rows:
            if should_stop():
                raise StepInterrupted(f"step {self.step + 1} was given up")
            self._lengths.add(row.length)
            gradient, added = _add_row(self._config, self._model, params, gradient, _arrays(row))
            # Waiting here keeps one row's activations in memory, not several.
            sums.append(np.asarray(jax.device_get(added), np.float64))
        total = TokenSums(*np.sum(sums, axis=0))
        place = TokenSums._fields.index("largest")
        return total._replace(largest=np.max([row[place] for row in sums])), gradient

    def _step(self, batch: Batch, gradient: Params, loss: float) -> tuple[float, str]:
        """Apply the gradient; returns its norm, and the reason when it was not applied."""
        if not batch.rows:
            return 0.0, "no sequence has both an advantage and a token to learn"
        if not np.isfinite(loss):
            return float("nan"), f"the loss is {loss}"
        norm = float(_global_norm(gradient)) / self._divisor(batch)
        if not np.isfinite(norm):
            return norm, f"the gradient's norm is {norm}"
        scale = min(1.0, self._config.max_grad_norm / max(norm, 1e-30)) / self._divisor(batch)
        params, optimizer = _apply(
            self._config, self._state.params, self._state.optimizer, gradient, np.float32(scale)
        )
        self._state = LearnerState(params, optimizer, self._state.step + 1)
        jax.block_until_ready(params)
        return norm, ""


def _schedule(config: LearnerConfig) -> Callable[[Any], Any]:
    """Step size by optimizer step: linear warm-up, then constant."""
    schedule: Callable[[Any], Any] = optax.constant_schedule(config.learning_rate)
    if config.warmup_steps > 0:
        first, steps = config.learning_rate / config.warmup_steps, max(1, config.warmup_steps - 1)
        schedule = optax.linear_schedule(first, config.learning_rate, steps)
    return schedule


def _optimizer(config: LearnerConfig) -> optax.GradientTransformation:
    """AdamW; clipping is done by the learner, which needs the norm for its report."""
    return optax.adamw(
        _schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
    )


@partial(jax.jit, static_argnums=0)
def _start(config: LearnerConfig, params: Params) -> Any:
    """The optimizer's state before the first step."""
    return _optimizer(config).init(params)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _add_row(
    config: LearnerConfig,
    model: ModelConfig,
    params: Params,
    gradient: Params,
    row: Mapping[str, jax.Array],
) -> tuple[Params, TokenSums]:
    """`gradient` plus the row's, and the row's sums; arrays of `row` are `Row`'s."""

    def objective(params: Params) -> tuple[jax.Array, TokenSums]:
        states = hidden_states(
            model, params, row["tokens"][None], row["positions"][None], row["ends"][None]
        )[0]
        logprobs, entropies = token_logprobs(
            states[row["readers"]],
            head_weight(model, params).T,
            row["targets"],
            row["reads"],
            _chunk(len(row["targets"])),
        )
        sums = token_sums(
            logprobs,
            entropies,
            row["sampler_logprobs"],
            row["positive"],
            row["negative"],
            row["sharing"],
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            ratio_cap=config.ratio_cap,
        )
        return -sums.objective, sums

    added, sums = jax.grad(objective, has_aux=True)(params)
    return jax.tree.map(jnp.add, gradient, added), sums


def _chunk(length: int) -> int:
    """The largest divisor of `length` that is at most `_HEAD_CHUNK`."""
    return next(size for size in range(min(length, _HEAD_CHUNK), 0, -1) if length % size == 0)


def _arrays(row: Row) -> dict[str, np.ndarray]:
    """The arrays of `row` that the device reads."""
    return {
        "reads": np.asarray(row.reads, np.int32),
        "tokens": row.tokens,
        "positions": row.positions,
        "ends": row.ends,
        "readers": row.readers,
        "targets": row.targets,
        "sampler_logprobs": row.sampler_logprobs,
        "positive": row.positive,
        "negative": row.negative,
        "sharing": row.sharing,
    }


@jax.jit
def _global_norm(gradient: Params) -> jax.Array:
    """Square root of the sum of all squares."""
    return jnp.sqrt(sum((jnp.sum(g * g) for g in jax.tree.leaves(gradient)), jnp.zeros(())))


# The old parameters are not donated: a sampler may still be reading them.
@partial(jax.jit, static_argnums=0, donate_argnums=(2, 3))
def _apply(
    config: LearnerConfig,
    params: Params,
    state: Any,
    gradient: Params,
    scale: jax.Array,
) -> tuple[Params, Any]:
    """One optimizer update with `gradient` times `scale`."""
    scaled = jax.tree.map(lambda g: g * scale, gradient)
    updates, state = _optimizer(config).update(scaled, state, params)
    changed: Params = optax.apply_updates(params, updates)  # pyright: ignore[reportAssignmentType]
    return changed, state


def _report(batch: Batch, sums: TokenSums, **values: Any) -> StepReport:
    """Means of `sums`, beside the values given."""
    tokens = max(float(sums.tokens), 1.0)
    return StepReport(
        entropy=float(sums.entropy) / tokens,
        mean_ratio=float(sums.ratio) / tokens,
        clipped_fraction=float(sums.clipped) / tokens,
        mismatch_kl=float(sums.mismatch_kl) / tokens,
        mismatch_mean=float(sums.difference) / tokens,
        mismatch_max=float(sums.largest),
        sequences=batch.sequences,
        loss_tokens=batch.loss_tokens,
        flat_tokens=batch.flat_tokens,
        tree_tokens=batch.tree_tokens,
        padded_tokens=batch.padded_tokens,
        rows=len(batch.rows),
        **values,
    )
