"""The kernel in C does what XLA does, for every shape, and reads nothing that it need not."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import TINY

from patchgym.trainer.sampler import kv_cache, native_attention
from patchgym.trainer.sampler.kv_cache import Pair, attend

WIDE = replace(TINY, head_dim=16)
BIN = Path(native_attention.__file__).parent / "bin"


def narrowed(x: np.ndarray) -> np.ndarray:
    """To bfloat16, as uint16."""
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16)).view(np.uint16)


def widened(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16).astype(jnp.float32)


def inputs(
    seed: int, banks: int, rows: int, kv: int, share: int, room: int, size: int
) -> tuple[list[jax.Array], list[list[np.ndarray]]]:
    """Queries, keys, values and positions of a token a turn; and caches of float32."""
    dice = np.random.default_rng(seed)
    turns = banks * rows
    shapes = (turns, kv * share, size), (turns, kv, size), (turns, kv, size)
    drawn = [jnp.asarray(dice.normal(size=shape), jnp.float32) for shape in shapes]
    drawn[0] = drawn[0] * size**-0.5
    positions = jnp.asarray(dice.integers(0, room, turns), jnp.int32)
    caches = [
        [dice.normal(size=(rows, kv, room, size)).astype(np.float32) for _ in range(2)]
        for _ in range(banks)
    ]
    return [*drawn, positions], caches


def pairs_of(caches: list[list[np.ndarray]]) -> list[Pair]:
    return [(jnp.asarray(keys), jnp.asarray(values)) for keys, values in caches]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    banks=st.sampled_from([1, 2, 4]),
    rows=st.integers(1, 5),
    kv=st.integers(1, 3),
    share=st.integers(1, 9),
    room=st.integers(1, 70),
    size=st.sampled_from([16, 32, 48, 64, 128]),
    window=st.sampled_from([None, 1, 7, 64]),
    narrow=st.booleans(),
)
def test_it_agrees_with_xla(
    seed: int, banks: int, rows: int, kv: int, share: int, room: int, size: int,
    window: int | None, narrow: bool,
) -> None:  # fmt: skip
    assert native_attention.serves(WIDE)
    (q, k, v, positions), caches = inputs(seed, banks, rows, kv, share, room, size)
    given_caches = caches
    if narrow:  # XLA gets the same numbers, as float32
        given_caches = [[narrowed(each) for each in pair] for pair in caches]
        caches = [[np.asarray(widened(jnp.asarray(e))) for e in p] for p in given_caches]
        k, v = (each.astype(jnp.bfloat16).astype(jnp.float32) for each in (k, v))
    expected, wanted = attend(q, k, v, pairs_of(caches), positions, window, native=False)
    found, written = attend(q, k, v, pairs_of(given_caches), positions, window, native=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)
    for ours, theirs in zip(written, wanted, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert np.array_equal(widened(mine) if narrow else mine, other)


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_what_a_turn_does_not_see_is_never_read(dtype: str) -> None:
    (q, k, v, _), caches = inputs(0, 1, 4, 2, 3, 40, 64)
    positions = jnp.asarray([0, 7, 20, 39], jnp.int32)
    for held in caches[0]:
        for row, last in enumerate(np.asarray(positions)):
            held[row, :, last + 1 :] = np.nan
            held[row, :, : max(0, last - 4)] = np.nan  # out of the window of five
    if dtype == "uint16":
        caches = [[narrowed(each) for each in pair] for pair in caches]
    mixed, _ = attend(q, k, v, pairs_of(caches), positions, 5, native=True)
    assert np.isfinite(mixed).all()


def test_scores_far_apart_and_large_ones_are_exact() -> None:
    """The likeliest key takes all, however far the others are behind; equal ones share."""
    q = jnp.full((1, 1, 16), 100.0)
    k = jnp.full((1, 1, 16), 1.0)
    keys = np.zeros((1, 1, 4, 16), np.float32)
    keys[0, 0, 0], keys[0, 0, 1] = -1e4, 1.0
    values = np.arange(4, dtype=np.float32)[None, None, :, None] * np.ones(
        (1, 1, 4, 16), np.float32
    )
    mixed, _ = attend(
        q, k, jnp.full((1, 1, 16), 3.0), pairs_of([[keys, values]]), jnp.asarray([3]), None,
        native=True,
    )  # fmt: skip
    np.testing.assert_allclose(mixed, 2.0, atol=1e-6)  # places 1 and 3, half each


def test_caches_are_written_in_place() -> None:
    (q, k, v, positions), caches = inputs(0, 2, 3, 2, 2, 32, 16)
    pairs = pairs_of(caches)
    before = [array.unsafe_buffer_pointer() for pair in pairs for array in pair]
    step = jax.jit(
        lambda pairs: attend(q, k, v, pairs, positions, None, native=True)[1], donate_argnums=0
    )
    after = step(pairs)
    assert [array.unsafe_buffer_pointer() for pair in after for array in pair] == before


def test_operands_that_do_not_fit_are_refused() -> None:
    (q, k, v, positions), caches = inputs(0, 1, 2, 2, 2, 8, 16)
    ((keys, values),) = pairs_of(caches)
    with pytest.raises(Exception, match="attention: operands of shapes that don't fit"):
        attend(q[:, :3], k, v, [(keys, values)], positions, None, native=True)
    halves = keys.astype(jnp.float16), values.astype(jnp.float16)
    with pytest.raises(Exception, match="attention: operands of a wrong type"):
        attend(q, k, v, [halves], positions, None, native=True)
    short = keys[:, :, :4], values[:, :, :4]
    q, k, v, positions = (jnp.concatenate([each, each]) for each in (q, k, v, positions))
    with pytest.raises(Exception, match="attention: caches of several shapes"):
        attend(q, k, v, [(keys, values), short], positions, None, native=True)


def test_every_library_of_this_machine_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (q, k, v, positions), caches = inputs(3, 2, 4, 3, 3, 48, 64)
    assert native_attention.serves(WIDE)
    expected, _ = attend(q, k, v, pairs_of(caches), positions, None, native=True)
    levels = [path.stem.removeprefix("attention-") for path in BIN.glob("*.so")]
    best = native_attention.processor_level(Path("/proc/cpuinfo").read_text())
    order = ["x86_64", "x86_64_v3", "x86_64_v4"]
    can_run = [f"x86_64-{each}" for each in order[: order.index(best) + 1]]
    tried = sorted(set(levels) & set(can_run)) if platform.machine() == "x86_64" else levels
    assert tried
    for level in tried:
        library = ctypes.CDLL(str(BIN / f"attention-{level}.so"))
        name = f"patchgym_attend_{level}"
        jax.ffi.register_ffi_target(
            name, jax.ffi.pycapsule(library.patchgym_attend), platform="cpu"
        )
        monkeypatch.setattr(native_attention, "_TARGET", name)
        found, _ = attend(q, k, v, pairs_of(caches), positions, None, native=True)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_a_processor_gets_the_best_that_all_of_it_can_do() -> None:
    old, new = "flags\t\t: fpu sse2", "flags\t\t: fpu avx2 bmi1 bmi2 f16c fma movbe"
    best = f"{new} avx512f avx512bw avx512cd avx512dq avx512vl"
    level = native_attention.processor_level
    assert [level(text) for text in ("", old, new, best)] == [
        "x86_64", "x86_64", "x86_64_v3", "x86_64_v4",
    ]  # fmt: skip
    assert level(f"{best}\nmodel name : x\n{new}\n") == "x86_64_v3"


def test_a_model_with_odd_heads_is_left_to_xla() -> None:
    odd = replace(TINY, head_dim=12)
    assert not native_attention.serves(odd)
    assert kv_cache.cache_dtype(odd, "bfloat16") == "float32"
    assert kv_cache.cache_dtype(WIDE, "bfloat16") == "uint16"
    assert kv_cache.cache_dtype(WIDE, "float32") == "float32"
