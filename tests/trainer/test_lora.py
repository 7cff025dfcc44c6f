"""Low-rank adapters: their settings, their sizes, and the merged forward with its gradients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from tiny_model import TINY

from patchgym.trainer.lora import TARGETS, LoraConfig, adapter_count, adapter_shapes
from patchgym.trainer.lora.adapters import (
    Adapted,
    Adapters,
    adapted,
    init_adapters,
    merged,
    merged_layer,
)
from patchgym.trainer.lora.product import merged_product
from patchgym.trainer.model import ModelConfig
from patchgym.trainer.model.decoder import Params, hidden_states, init_params
from patchgym.trainer.model.execution import Execution


def shape(width: int, layers: int, heads: int, kv_heads: int, size: int, ffn: int) -> ModelConfig:
    """A published model's, but for what adapters don't depend on."""
    return ModelConfig(
        family="qwen2", vocabulary=152064, width=width, layers=layers, heads=heads,
        kv_heads=kv_heads, head_dim=size, ffn=ffn, tied=False,
    )  # fmt: skip


PUBLISHED = {
    "SmolLM2-135M": shape(576, 30, 9, 3, 64, 1536),
    "Qwen2.5-Coder-0.5B": shape(896, 24, 14, 2, 64, 4864),
    "Qwen2.5-Coder-7B": shape(3584, 28, 28, 4, 128, 18944),
    "Qwen2.5-Coder-32B": shape(5120, 64, 40, 8, 128, 27648),
}
QWEN_7B = PUBLISHED["Qwen2.5-Coder-7B"]
SOME = LoraConfig(rank=3, alpha=6.0, targets=("query", "down"))
ALL = LoraConfig(rank=4, alpha=6.0)


def trained(config: LoraConfig, model: ModelConfig = TINY, seed: int = 5) -> Adapters:
    """Adapters whose B is no longer zero."""
    adapters, key = init_adapters(config, model, seed), jax.random.key(seed)
    for pair in adapters.values():
        pair["B"] = 0.1 * jax.random.normal(key, pair["B"].shape)
    return adapters


def test_adapters_are_off_unless_a_rank_is_set() -> None:
    config = LoraConfig()
    assert (config.rank, config.targets) == (0, TARGETS)
    with pytest.raises(ValueError, match=r"learner\.lora\.rank is 0: .* set a rank, such as 16"):
        adapter_shapes(config, TINY)
    with pytest.raises(ValueError, match=r"learner\.lora\.rank is 0"):
        init_adapters(config, TINY, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": -1}, r"learner\.lora\.rank can't be -1"),
        ({"rank": 8, "alpha": 0.0}, r"learner\.lora\.alpha can't be 0\.0"),
        ({"rank": 8, "alpha": -2.0}, r"learner\.lora\.alpha can't be -2\.0"),
        ({"rank": 8, "alpha": float("nan")}, r"learner\.lora\.alpha can't be nan"),
        ({"rank": 8, "alpha": float("inf")}, r"learner\.lora\.alpha can't be inf"),
        ({"rank": 8, "targets": ()}, r"learner\.lora\.targets is empty"),
        ({"rank": 8, "targets": ("querry",)}, r"has 'querry', .* did you mean 'query'\?"),
        ({"rank": 8, "targets": ("embed",)}, r"has 'embed', .* known: query, key, value"),
        ({"rank": 8, "targets": ("up", "up")}, r"learner\.lora\.targets names 'up' twice"),
        ({"alpha": 16.0}, r"learner\.lora\.alpha is 16\.0, which nothing reads .*rank = 0"),
        ({"targets": ("query",)}, r"learner\.lora\.targets is \('query',\), which nothing reads"),
    ],
)
def test_a_setting_that_can_not_work_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LoraConfig(**settings)


def test_importing_the_settings_loads_neither_jax_nor_numpy() -> None:
    code = (
        "import sys, patchgym.trainer.lora\n"
        "print([name for name in ('jax', 'numpy', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_seven_billion_model_has_forty_million_weights_in_adapters_of_rank_16() -> None:
    # In and out of a layer's matrices: q and o 3584 + 3584, k and v 3584 + 512, the rest
    # 3584 + 18944; together 90,112 a layer, times 16, times 28 layers.
    assert adapter_count(LoraConfig(rank=16), QWEN_7B) == 90_112 * 16 * 28 == 40_370_176
    attention = LoraConfig(rank=8, targets=("query", "value"))
    assert adapter_count(attention, QWEN_7B) == (7168 + 4096) * 8 * 28


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sizes_in_the_documentation_are_those_of_the_function(name: str, root: Path) -> None:
    count = adapter_count(LoraConfig(rank=16), PUBLISHED[name])
    line = f"| {name} | {count:,} | {4 * count / 1e6:.0f} MB | {16 * count / 1e6:,.0f} MB |"
    assert line in (root / "docs" / "lora.md").read_text()


def test_the_shapes_are_those_of_the_matrices_that_are_adapted() -> None:
    assert adapter_shapes(SOME, TINY) == {
        "query": ((2, 32, 3), (2, 3, 32)),
        "down": ((2, 48, 3), (2, 3, 32)),
    }
    params = jax.eval_shape(lambda: init_params(TINY, 0))
    for name, (a, b) in adapter_shapes(ALL, TINY).items():
        assert params["layers"][name].shape == (a[0], a[1], b[2])
    assert list(adapter_shapes(LoraConfig(rank=1, targets=("down", "query")), TINY)) == [
        "query",
        "down",
    ]


def test_a_is_drawn_with_a_variance_of_one_over_its_inputs_and_b_is_zero() -> None:
    wide = ModelConfig(vocabulary=8, width=256, layers=4, heads=4, kv_heads=2, head_dim=64, ffn=512)
    adapters = init_adapters(LoraConfig(rank=16), wide, 0)
    for name, pair in adapters.items():
        a = np.asarray(pair["A"], np.float64)
        assert pair["A"].dtype == pair["B"].dtype == jnp.float32
        assert abs(a.mean()) < 0.01
        assert a.var() * a.shape[1] == pytest.approx(1, abs=0.06), name
        assert not pair["B"].any()


def test_the_same_seed_gives_the_same_adapters_whatever_else_is_adapted() -> None:
    first, again, other = (init_adapters(ALL, TINY, seed) for seed in (1, 1, 2))
    alone = init_adapters(LoraConfig(rank=4, targets=("up",)), TINY, 1)
    for name, pair in first.items():
        assert np.array_equal(pair["A"], again[name]["A"])
        assert not np.array_equal(pair["A"], other[name]["A"])
    assert np.array_equal(first["up"]["A"], alone["up"]["A"])
    assert not np.array_equal(first["up"]["A"], first["gate"]["A"])


def product_and_gradients(
    x: npt.NDArray[Any], w: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any], scale: float
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """y = x W + s (x A) B, and what half of its squared sum gives A and B, one number at a time."""
    y, da, db = np.zeros((len(x), w.shape[1])), np.zeros_like(a), np.zeros_like(b)
    for row, place in np.ndindex(y.shape):
        y[row, place] = sum(x[row, i] * w[i, place] for i in range(len(w)))
        for i, k in np.ndindex(a.shape):
            y[row, place] += scale * x[row, i] * a[i, k] * b[k, place]
    for row, place in np.ndindex(y.shape):
        for i, k in np.ndindex(a.shape):
            da[i, k] += scale * y[row, place] * x[row, i] * b[k, place]
            db[k, place] += scale * y[row, place] * x[row, i] * a[i, k]
    return y, da, db


Pair = dict[str, jax.Array]
Form = Callable[[LoraConfig, jax.Array, Pair], Any]


def as_array(config: LoraConfig, w: jax.Array, pair: Pair) -> jax.Array:
    """W + s A B itself."""
    return merged_layer(config, {"gate": w}, {"gate": pair})["gate"]


def as_adapted(config: LoraConfig, w: jax.Array, pair: Pair) -> Adapted:
    """What multiplies like it."""
    return Adapted(weight=w, a=pair["A"], b=pair["B"], scale=config.scale)


@pytest.mark.parametrize("form", [as_array, as_adapted])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_product_and_its_gradients_equal_a_slow_reference(jitted: bool, form: Form) -> None:
    random = np.random.default_rng(0)
    x, w, a, b = (random.normal(size=shape) for shape in ((3, 5), (5, 4), (5, 2), (2, 4)))
    config = LoraConfig(rank=2, alpha=3.0, targets=("gate",))
    y, da, db = product_and_gradients(x, w, a, b, 1.5)

    def product(pair: Pair) -> tuple[jax.Array, jax.Array]:
        out = jnp.asarray(x, jnp.float32) @ form(config, jnp.asarray(w, jnp.float32), pair)
        return jnp.sum(out**2) / 2, out

    run = jax.value_and_grad(product, has_aux=True)
    pair = {"A": jnp.asarray(a, jnp.float32), "B": jnp.asarray(b, jnp.float32)}
    (_, out), gradient = (jax.jit(run) if jitted else run)(pair)
    np.testing.assert_allclose(out, y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient["A"], da, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient["B"], db, rtol=1e-5, atol=1e-5)


GATE = LoraConfig(rank=8, alpha=16.0, targets=("gate",))


def inputs(length: int = 40) -> tuple[jax.Array, jax.Array, Pair]:
    """Activations x [2, T, 96], W [96, 64], and an adapter of rank 8."""
    keys, shapes = jax.random.split(jax.random.key(1), 3), ((96, 64), (96, 8), (8, 64))
    w, a, b = (
        jax.random.normal(key, shape) / shape[0] ** 0.5
        for key, shape in zip(keys, shapes, strict=True)
    )
    return jax.random.normal(jax.random.key(2), (2, length, 96)), w, {"A": a, "B": b}


def summed(form: Form, x: jax.Array, w: jax.Array, pair: Pair) -> jax.Array:
    """A loss with a gradient that differs from number to number."""
    return jnp.sum(jnp.tanh(x @ form(GATE, w, pair)).astype(jnp.float32))


@pytest.mark.parametrize("form", [as_array, as_adapted])
def test_one_product_with_the_sum_equals_the_paper_s_two_in_value_and_gradient(form: Form) -> None:
    x, w, pair = inputs()

    def two(x: jax.Array, pair: Pair) -> jax.Array:
        return jnp.sum(jnp.tanh(x @ w + GATE.scale * (x @ pair["A"]) @ pair["B"]))

    run = jax.value_and_grad(lambda x, pair: summed(form, x, w, pair), argnums=(0, 1))
    value, (dx, gradient) = jax.jit(run)(x, pair)
    expected, (their_dx, theirs) = jax.jit(jax.value_and_grad(two, argnums=(0, 1)))(x, pair)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(dx, their_dx, rtol=0, atol=3e-6 * float(jnp.abs(dx).max()))
    for side in ("A", "B"):
        size = float(jnp.abs(theirs[side]).max())
        np.testing.assert_allclose(gradient[side], theirs[side], rtol=0, atol=3e-6 * size)


def test_in_bfloat16_the_gradients_are_float32_and_near_those_of_float32() -> None:
    x, w, pair = inputs()
    run = jax.jit(jax.grad(lambda x, w, pair: summed(as_adapted, x, w, pair), argnums=(0, 2)))
    _, exact = run(x, w, pair)
    dx, rounded = run(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), pair)
    assert dx.dtype == jnp.bfloat16
    for side in ("A", "B"):
        assert rounded[side].dtype == jnp.float32
        size = float(jnp.abs(exact[side]).max())
        np.testing.assert_allclose(rounded[side], exact[side], rtol=0, atol=0.02 * size)


def test_the_adapted_form_s_gradient_takes_two_thirds_of_the_array_s_work() -> None:
    x, w, pair = inputs(length=512)

    def work(form: Form) -> float:
        run = jax.jit(jax.grad(lambda x, pair: summed(form, x, w, pair), argnums=(0, 1)))
        cost = run.lower(x, pair).compile().cost_analysis()
        assert cost is not None
        return float(cost["flops"])

    # Forward and dx against forward, dx and dW; the rank's own are less than half a product.
    product = 2 * 1024 * 96 * 64
    narrow = 4 * 8 * (96 + 64) * 1024
    assert work(as_array) > 2.95 * product
    assert work(as_adapted) < 2.1 * product + narrow


def row(length: int = 24) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, positions and ends [1, T] of a causal row."""
    tokens = jax.random.randint(jax.random.key(2), (1, length), 0, TINY.vocabulary)
    return tokens, jnp.arange(length, dtype=jnp.int32)[None], jnp.full((1, length), length)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_zero_b_changes_no_bit_of_the_weights_or_of_what_they_compute(dtype: Any) -> None:
    base: Params = jax.tree.map(lambda w: w.astype(dtype), init_params(TINY, 3))
    zero = init_adapters(ALL, TINY, 0)
    whole = jax.jit(partial(merged, ALL))(base, zero)
    jax.tree.map(np.testing.assert_array_equal, whole, base)
    assert {w.dtype for w in jax.tree.leaves(whole)} == {jnp.dtype(dtype)}
    run = jax.jit(partial(hidden_states, TINY))
    expected = np.asarray(run(base, *row())).tobytes()
    for params in (whole, adapted(ALL, base, zero)):
        assert np.asarray(run(params, *row())).tobytes() == expected


def cubes(params: Params) -> jax.Array:
    """A loss of a tiny model that every weight of its layers takes part in."""
    return jnp.sum(hidden_states(TINY, params, *row()) ** 3)


@pytest.mark.parametrize("form", [merged, adapted])
def test_the_gradient_of_a_model_is_that_of_its_full_weights_taken_through_a_and_b(
    form: Callable[..., Params],
) -> None:
    base, adapters = init_params(TINY, 3), trained(ALL)

    def loss(base: Params, adapters: Adapters) -> jax.Array:
        return cubes(form(ALL, base, adapters))

    into_base, ours = jax.jit(jax.grad(loss, argnums=(0, 1)))(base, adapters)
    assert not any(gradient.any() for gradient in jax.tree.leaves(into_base)), "it is frozen"
    full = jax.jit(jax.grad(cubes))(merged(ALL, base, adapters))["layers"]
    for name, pair in adapters.items():
        a, b, dw = (np.asarray(array, np.float64) for array in (pair["A"], pair["B"], full[name]))
        wanted = {
            "A": ALL.scale * dw @ b.transpose(0, 2, 1),
            "B": ALL.scale * a.transpose(0, 2, 1) @ dw,
        }
        for side, expected in wanted.items():
            size = np.abs(expected).max()
            assert size > 0
            np.testing.assert_allclose(ours[name][side], expected, rtol=0, atol=3e-6 * size)


def test_an_adapted_model_computes_what_its_merged_weights_compute() -> None:
    base, adapters = init_params(TINY, 3), trained(SOME)
    run = jax.jit(partial(hidden_states, TINY))
    ours = run(adapted(SOME, base, adapters), *row())
    np.testing.assert_allclose(ours, run(merged(SOME, base, adapters), *row()), rtol=0, atol=1e-6)
    assert np.abs(np.asarray(ours - run(base, *row()))).max() > 0.01


def test_in_bfloat16_an_adapted_model_is_its_merged_weights_but_for_rounding() -> None:
    base, adapters = init_params(TINY, 3), trained(SOME)
    run = jax.jit(partial(hidden_states, TINY, execution=Execution(compute="bfloat16")))
    run_exact = jax.jit(partial(hidden_states, TINY))
    ours = run(adapted(SOME, base, adapters), *row()).astype(jnp.float32)
    theirs = run(merged(SOME, base, adapters, dtype=jnp.bfloat16), *row()).astype(jnp.float32)
    exact = run_exact(merged(SOME, base, adapters), *row())
    noise = np.abs(np.asarray(theirs - exact)).max()
    assert np.abs(np.asarray(ours - exact)).max() < 2 * noise
    assert np.abs(np.asarray(ours - run(base, *row()))).max() > 4 * noise


def test_layers_merged_one_at_a_time_in_a_scan_are_the_stacked_ones() -> None:
    base, adapters = init_params(TINY, 3), trained(SOME)

    def one(carry: None, layer: tuple[Params, Adapters]) -> tuple[None, Params]:
        return carry, merged_layer(SOME, *layer)

    _, stacked = jax.lax.scan(one, None, (base["layers"], adapters))
    whole = merged(SOME, base, adapters)
    for name, weight in whole["layers"].items():
        np.testing.assert_allclose(stacked[name], weight, rtol=1e-6, atol=1e-7)
    assert not np.array_equal(stacked["query"], base["layers"]["query"])
    assert np.array_equal(stacked["up"], base["layers"]["up"])


def test_a_bfloat16_product_is_as_near_to_the_exact_one_as_the_rounding_of_its_matrix() -> None:
    keys = jax.random.split(jax.random.key(5), 4)
    weight = jax.random.normal(keys[0], (64, 48)).astype(jnp.bfloat16)
    a, b = 0.1 * jax.random.normal(keys[1], (64, 4)), 0.1 * jax.random.normal(keys[2], (4, 48))
    x = jax.random.normal(keys[3], (32, 64)).astype(jnp.bfloat16)
    found = np.asarray(merged_product(x, weight, a, b, 2.0), np.float32)
    exact = np.asarray(weight, np.float32) + 2.0 * np.asarray(a) @ np.asarray(b)
    rows = np.asarray(x, np.float32)
    once = np.asarray(jnp.asarray(exact).astype(jnp.bfloat16), np.float32)
    rounding = np.abs(rows @ once - rows @ exact).max()
    result = np.abs(rows @ exact).max() / 256  # of the result itself, to bfloat16
    assert np.abs(found - rows @ exact).max() < 2 * rounding + result
    without = np.abs(rows @ np.asarray(weight, np.float32) - rows @ exact).max()
    assert without > 4 * (2 * rounding + result), "what is added would be seen if it were lost"


def test_a_bfloat16_model_is_merged_in_float32_and_rounded_once() -> None:
    base: Params = jax.tree.map(lambda w: w.astype(jnp.bfloat16), init_params(TINY, 3))
    adapters = trained(SOME)
    pair = {side: np.asarray(array) for side, array in adapters["down"].items()}
    exact = np.asarray(base["layers"]["down"], np.float32) + 2.0 * pair["A"] @ pair["B"]
    same = merged(SOME, base, adapters)["layers"]["down"]
    wide = merged(SOME, base, adapters, dtype=jnp.float32)["layers"]
    assert same.dtype == jnp.bfloat16
    np.testing.assert_allclose(wide["down"], exact, rtol=1e-6, atol=1e-7)
    assert np.array_equal(same, wide["down"].astype(jnp.bfloat16))
    assert wide["up"].dtype == jnp.bfloat16, "what has no adapter is passed on"


def test_adapters_of_other_settings_are_refused() -> None:
    base = init_params(TINY, 3)
    with pytest.raises(ValueError, match=r"adapters of query, down, .*targets are query, key"):
        merged(LoraConfig(rank=3), base, trained(SOME))
    with pytest.raises(ValueError, match=r"adapter of query has shapes .* not the rank 5"):
        merged(LoraConfig(rank=5, targets=("query", "down")), base, trained(SOME))


def scanned_bytes(policy: Any, layers: int, width: int) -> int:
    """Bytes of temporary arrays in a program that differentiates `layers` adapted layers."""
    config = LoraConfig(rank=2, alpha=2.0, targets=("query",))
    weights = {"query": jnp.zeros((layers, width, width))}
    adapters = {"query": {"A": jnp.zeros((layers, width, 2)), "B": jnp.zeros((layers, 2, width))}}

    def layer(x: jax.Array, scanned: Params) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ scanned["query"]), None

    def loss(adapters: Adapters, weights: Params, x: jax.Array) -> jax.Array:
        kept = jax.checkpoint(layer, policy=policy, prevent_cse=False)
        scanned = adapted(config, {"layers": weights}, adapters)["layers"]
        return jnp.sum(jax.lax.scan(kept, x, scanned)[0])

    x = jnp.zeros((1, 4, width))
    memory = jax.jit(jax.grad(loss)).lower(adapters, weights, x).compile().memory_analysis()
    assert memory is not None
    return int(memory.temp_size_in_bytes)


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_the_merged_weights_of_all_layers_never_exist_at_once(policy: Any) -> None:
    width, matrix = 128, 4 * 128 * 128
    few, many = (scanned_bytes(policy, layers, width) for layers in (4, 24))
    assert many - few < 20 * matrix / 8, "what a layer adds is much less than its matrix"
    assert many < 8 * matrix
