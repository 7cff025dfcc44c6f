"""GGUF files of each family come back as they were written; damaged ones are named in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_model import TINY

from patchgym.trainer.model import ModelConfig, ModelError, RopeScaling, load_model
from patchgym.trainer.model.decoder import init_params

from .family_cases import CASES, random_params
from .gguf_writing import write_gguf

PARAMS = init_params(TINY, 3)

FAMILIES = {
    "llama": TINY,
    "llama3": replace(
        TINY,
        tied=False,
        rope_theta=500000.0,
        rope=RopeScaling(kind="llama3", factor=32.0, original=8192),
    ),
    "qwen2": CASES["qwen2"].config,
    "qwen2 yarn": replace(
        CASES["qwen2"].config, rope=RopeScaling(kind="yarn", factor=4.0, original=32)
    ),
    "qwen3": CASES["qwen3"].config,
    "gemma3": replace(CASES["gemma3"].config, query_scalar=16.0),
}
"""Of each family what llama.cpp has words for: Gemma's scalar is the size of a head there."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gguf_comes_back(tmp_path: Path, name: str) -> None:
    config, path = FAMILIES[name], tmp_path / "tiny.gguf"
    params = random_params(config, 3)
    write_gguf(path, config, params)
    found, read, tokenizer = load_model(path)
    assert found == config
    # The converter adds one to Gemma's norms, which rounds.
    slack = 2e-7 if config.family == "gemma3" else 0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=slack), read, params)
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo"
    assert tokenizer.end_ids == {0, 2}


def test_the_largest_gemma_has_its_own_query_scalar(tmp_path: Path) -> None:
    config = ModelConfig(
        family="gemma3", vocabulary=260, width=8, layers=62, heads=2, kv_heads=1, head_dim=2,
        ffn=8, window=8, windowed=tuple((i + 1) % 6 != 0 for i in range(62)),
        local_rope_theta=1e4, query_scalar=4.0,
    )  # fmt: skip
    write_gguf(tmp_path / "deep.gguf", config, random_params(config, 3))
    assert load_model(tmp_path / "deep.gguf")[0] == config


def test_frequencies_that_are_not_llama3s_are_refused(tmp_path: Path) -> None:
    odd = replace(FAMILIES["llama3"], rope=RopeScaling(kind="llama3", factor=8.0, original=1024))
    write_gguf(tmp_path / "odd.gguf", odd, random_params(odd, 3))
    with pytest.raises(ModelError, match="rope_freqs is not Llama 3's"):
        load_model(tmp_path / "odd.gguf")


def test_a_tensor_that_the_architecture_does_not_have_is_named(tmp_path: Path) -> None:
    config = replace(TINY, family="qwen2")
    params = random_params(config, 3)
    write_gguf(tmp_path / "odd.gguf", config, params, architecture="llama")
    with pytest.raises(ModelError, match=r"tensor blk\.0\.attn_k\.bias is unknown to a llama"):
        load_model(tmp_path / "odd.gguf")


def test_what_is_no_gguf_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>not found</html>")
    with pytest.raises(ModelError, match=r"page\.gguf: not a GGUF file; delete it"):
        load_model(tmp_path / "page.gguf")


def test_another_architecture_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "odd.gguf", TINY, PARAMS, architecture="mamba")
    with pytest.raises(ModelError, match=r"odd\.gguf: architecture 'mamba' is not supported"):
        load_model(tmp_path / "odd.gguf")


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.95, 0.999])
def test_a_truncated_gguf_is_named_in_one_line(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "cut.gguf"
    write_gguf(path, TINY, PARAMS)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ModelError, match=r"cut\.gguf: .*fetch the model again") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_are_an_error_or_a_model_but_never_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "bent.gguf"
    write_gguf(path, TINY, PARAMS)
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(4, 8000, 60):
        bent = bytearray(data)
        bent[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(bent))
        try:
            load_model(path)
        except ModelError as error:
            assert str(path) in str(error)
