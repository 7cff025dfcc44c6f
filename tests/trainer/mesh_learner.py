"""Trains learners on meshes of simulated devices, and prints how far they are from one device.

Usage: XLA_FLAGS=--xla_force_host_platform_device_count=8 python mesh_learner.py. Prints JSON:
`outcomes`, and `refusals`. A process of its own: the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np
from learner_inputs import forked_group
from tiny_model import TINY

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.lora import LoraConfig
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.model.execution import Execution
from patchgym.trainer.parallel import MeshConfig
from patchgym.trainer.parallel.layout import make_layout

BLOCK, ROW, RATE = 4, 64, 1e-3
EVEN = replace(TINY, vocabulary=264)
"""Eight devices share its vocabulary evenly."""
MODELS = {
    "tied": EVEN,
    "untied": replace(EVEN, tied=False),
    "biases": replace(EVEN, family="qwen2", tied=False),
    "windowed": replace(
        TINY, family="gemma3", vocabulary=261, window=7, windowed=(True, False),
        local_rope_theta=1e3,
    ),
}  # fmt: skip
"""By a name for people; two devices can't share the vocabulary of the windowed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A learner, and the mesh that it trains on."""

    mesh: tuple[int, int, int]
    """Devices for rows, context and matrices."""
    model: str
    """One of `MODELS`."""
    rank: int = 0
    """Of the adapters; 0 trains all weights."""
    loss: dict[str, Any] = field(default_factory=dict)
    """Settings of the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far `case` is from the same learner on one device."""

    case: Case
    """What ran."""
    losses: list[tuple[float, float]]
    """Of `gradient` and of two steps: the mesh's and the one device's."""
    gradient: float
    """Largest difference of an array, over its largest number."""
    moments: float
    """The same of the optimizer's first moments after two steps."""
    moved: float
    """Mean difference of the weights after two steps, over the learning rate."""
    split: dict[str, list[list[str]]]
    """By the place of each array, for each dimension, the axes that split it."""
    shares: dict[str, float]
    """Of `gradient`, `state` and `frozen`: bytes on the device that has most, over one copy's."""


_ANCHORED = {"kl_coefficient": 0.05, "proximal": "step_start", "correction": "token", "updates": 2}

CASES = [
    Case(mesh=(1, 8, 1), model="untied"),
    Case(mesh=(4, 2, 1), model="windowed"),
    Case(mesh=(2, 2, 2), model="biases", rank=4, loss={"loss": "ppo", **_ANCHORED}),
]


def make(case: Case, *, meshed: bool, row_tokens: tuple[int, ...] = (ROW,)) -> Learner:
    """The learner of `case`, on its mesh or on one device, in rows of `row_tokens`."""
    mesh = MeshConfig(**dict(zip(("fsdp", "context", "tensor"), case.mesh, strict=True)))
    lora = LoraConfig(rank=case.rank) if case.rank else LoraConfig()
    config = LearnerConfig(
        row_tokens=row_tokens, length_normalizer=8, learning_rate=RATE, keep="inputs", lora=lora,
        **case.loss,
    )  # fmt: skip
    layout = make_layout(mesh) if meshed else None
    execution = Execution(block=BLOCK, keep="inputs", layout=layout, lora=lora)
    model = MODELS[case.model]
    params = jax.device_put(init_params(model, 0), jax.devices()[0])
    return Learner(config, model, params, execution=execution)


def run(case: Case, groups: list[list[TrainSequence]]) -> Outcome:
    """`case` on its mesh and on one device: a gradient, and two steps."""
    one, many = make(case, meshed=False), make(case, meshed=True)
    # B of an adapter begins at zero, and with it the gradient of A.
    losses = [(many.train(groups).loss, one.train(groups).loss)]
    batch = one.pack(groups)
    (loss, gradient), (want, reference) = many.gradient(batch), one.gradient(batch)
    losses += [(loss, want), (many.train(groups).loss, one.train(groups).loss)]
    held = {"gradient": gradient, "state": many.state, "frozen": many._frozen}
    return Outcome(
        case=case,
        losses=losses,
        gradient=_apart(gradient, reference),
        moments=_apart(many.state.optimizer[0].mu, one.state.optimizer[0].mu),
        moved=_mean_apart(many.state.params, one.state.params) / RATE,
        split={name: _split(array) for name, array in _named(held).items()},
        shares={name: _share(jax.tree.leaves(tree)) for name, tree in held.items() if tree},
    )


def refusal(mesh: tuple[int, int, int], **settings: Any) -> str:
    """What a learner on `mesh` that can't be is refused with."""
    try:
        make(Case(mesh=mesh, model="tied"), meshed=True, **settings).train(batches())
    except ValueError as error:
        return str(error)
    return ""


def batches() -> list[list[TrainSequence]]:
    """Five groups, which eight devices can't share evenly."""
    random = np.random.default_rng(0)
    return [forked_group(random) for _ in range(5)]


def _named(tree: Any) -> dict[str, jax.Array]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _split(array: jax.Array) -> list[list[str]]:
    """By dimension, the axes of more than one device that split it."""
    sharding: Any = array.sharding
    axes = [(one,) if isinstance(one, str) else one or () for one in sharding.spec]
    real = [[axis for axis in one if sharding.mesh.shape[axis] > 1] for one in axes]
    return real + [[]] * (array.ndim - len(real))


def _share(arrays: Sequence[jax.Array]) -> float:
    held = dict.fromkeys(jax.devices(), 0)
    for array in arrays:
        for shard in array.addressable_shards:
            held[shard.device] += shard.data.nbytes
    return max(held.values()) / sum(array.nbytes for array in arrays)


def _apart(got: Any, want: Any) -> float:
    hosts = [(np.asarray(a), np.asarray(b)) for a, b in _pairs(got, want)]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in hosts)


def _mean_apart(got: Any, want: Any) -> float:
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).mean()) for a, b in _pairs(got, want))


def _pairs(got: Any, want: Any) -> Iterable[tuple[jax.Array, jax.Array]]:
    return zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)


def main() -> None:
    """Print what ran and what was refused."""
    groups = batches()
    outcomes = [asdict(run(case, groups)) for case in CASES]
    refusals = [refusal((2, 4, 1), row_tokens=(64, 72)), refusal((2, 1, 4)), refusal((2, 2, 1))]
    json.dump({"outcomes": outcomes, "refusals": refusals}, sys.stdout)


if __name__ == "__main__":
    main()
