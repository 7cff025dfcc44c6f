"""AdamW with a linear warm-up, as compiled functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from .learner_config import LearnerConfig
from .model.decoder import Params
from .parallel.layout import Layout


def schedule(config: LearnerConfig) -> Callable[[Any], Any]:
    """Step size by optimizer update: linear warm-up, then constant."""
    chosen: Callable[[Any], Any] = optax.constant_schedule(config.learning_rate)
    if config.warmup_steps > 0:
        first, steps = config.learning_rate / config.warmup_steps, max(1, config.warmup_steps - 1)
        chosen = optax.linear_schedule(first, config.learning_rate, steps)
    return chosen


def start(config: LearnerConfig, params: Params, layout: Layout | None = None) -> Any:
    """The optimizer's state before the first update; moments lie as their weights do."""
    make = _optimizer(config).init
    if layout is None:
        return jax.jit(make)(params)
    return jax.jit(make, out_shardings=state_shardings(config, params, layout))(params)


def state_shardings(config: LearnerConfig, params: Params, layout: Layout) -> Any:
    """Where each array of the optimizer's state lies; of `params` only shapes are read."""
    optimizer = _optimizer(config)
    return optax.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, params),
        layout.shardings(params),
        transform_non_params=lambda _: layout.sharding(),
    )


def updates_so_far(state: Any) -> int:
    """Optimizer updates that led to `state`."""
    return int(state[0].count)


@jax.jit
def global_norm(gradient: Params) -> jax.Array:
    """Square root of the sum of all squares."""
    return jnp.sqrt(sum((jnp.sum(g * g) for g in jax.tree.leaves(gradient)), jnp.zeros(())))


def _update(
    config: LearnerConfig, params: Params, state: Any, gradient: Params, scale: jax.Array
) -> tuple[Params, Any]:
    """One optimizer update with `gradient` times `scale`."""
    scaled = jax.tree.map(lambda g: g * scale, gradient)
    updates, state = _optimizer(config).update(scaled, state, params)
    changed: Params = optax.apply_updates(params, updates)  # pyright: ignore[reportAssignmentType]
    return changed, state


# The old parameters are not donated: a sampler may still be reading them.
update = jax.jit(_update, static_argnums=0, donate_argnums=(2, 3))
"""`_update`, which consumes the optimizer's state and the gradient."""
update_keeping = jax.jit(_update, static_argnums=0, donate_argnums=3)
"""`_update`, which leaves the optimizer's state as it is, to be gone back to."""


def _optimizer(config: LearnerConfig) -> optax.GradientTransformation:
    """AdamW; clipping is done by the learner, which needs the norm for its report."""
    return optax.adamw(
        schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mu_dtype=config.first_moment,
    )
