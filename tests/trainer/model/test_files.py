"""Models are read as they were written, and damaged files are named in one line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from tiny_model import TINY, byte_tokenizer, full_forward

from patchgym.trainer.model import ModelConfig, ModelError, load_model
from patchgym.trainer.model.assemble import LAYER_TENSORS
from patchgym.trainer.model.decoder import Params, init_params


def _tensors(config: ModelConfig, params: Params) -> dict[str, npt.NDArray[np.float32]]:
    """`params` under Hugging Face's names and in its layout."""
    tensors = {
        "model.embed_tokens.weight": np.asarray(params["embed"]),
        "model.norm.weight": np.asarray(params["norm"]),
    }
    for ours, theirs in LAYER_TENSORS.items():
        for i in range(config.layers):
            array = np.asarray(params["layers"][ours][i])
            tensors[f"model.layers.{i}.{theirs}.weight"] = np.ascontiguousarray(array.T)
    if not config.tied:
        tensors["lm_head.weight"] = np.ascontiguousarray(np.asarray(params["head"]).T)
    return tensors


def _write_folder(folder: Path, config: ModelConfig, params: Params) -> None:
    """A Hugging Face folder of a Llama."""
    folder.mkdir()
    described = {
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.context,
    }
    (folder / "config.json").write_text(json.dumps(described))
    save_file(_tensors(config, params), str(folder / "model.safetensors"))
    byte_tokenizer()._backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": "{{ messages[0]['content'] }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_comes_back(tmp_path: Path, tied: bool) -> None:
    config = dataclasses.replace(TINY, tied=tied)
    params = init_params(config, 3)
    _write_folder(tmp_path / "model", config, params)
    read_config, read_params, tokenizer = load_model(tmp_path / "model")
    assert read_config == config
    jax.tree.map(np.testing.assert_array_equal, read_params, params)
    tokens = tokenizer.encode("def f(x): return x")
    expected = full_forward(config, params, tokens)
    np.testing.assert_allclose(full_forward(read_config, read_params, tokens), expected, atol=1e-6)
    assert tokenizer.end_of_turn == 2
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]) == "x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"attention_bias": True}, "biases are not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rotary scaling 'llama3' is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"hidden_size": 64}, "has shape"),
        ({"num_hidden_layers": 9}, "model.layers.2.input_layernorm.weight is missing"),
        ({"vocab_size": None}, "no usable value"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    folder = tmp_path / "model"
    _write_folder(folder, TINY, init_params(TINY, 3))
    described = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match=said) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_damaged_safetensors_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    _write_folder(folder, TINY, init_params(TINY, 3))
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        load_model(folder)


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.gguf: no such model"):
        load_model(tmp_path / "missing.gguf")


def test_what_is_no_gguf_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>not found</html>")
    with pytest.raises(ModelError, match=r"page\.gguf: not a GGUF file; delete it"):
        load_model(tmp_path / "page.gguf")


def _write_gguf(path: Path, architecture: str = "llama") -> Params:
    """A GGUF as llama.cpp's converter writes it; returns the weights in it."""
    import gguf

    params, tokenizer = init_params(TINY, 3), byte_tokenizer()
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(TINY.context)
    writer.add_embedding_length(TINY.width)
    writer.add_block_count(TINY.layers)
    writer.add_feed_forward_length(TINY.ffn)
    writer.add_head_count(TINY.heads)
    writer.add_head_count_kv(TINY.kv_heads)
    writer.add_rope_dimension_count(TINY.head_dim)
    writer.add_rope_freq_base(TINY.rope_theta)
    writer.add_layer_norm_rms_eps(TINY.eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    spellings = [tokenizer._backend.id_to_token(i) for i in range(TINY.vocabulary)]
    writer.add_token_list([spelling or "" for spelling in spellings])
    writer.add_token_types([3] * 3 + [1] * 257)
    writer.add_token_merges(["i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    parts = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for name, array in _tensors(TINY, params).items():
        if name in names:
            writer.add_tensor(names[name], array)
            continue
        _, _, layer, part = name.removesuffix(".weight").split(".", 3)
        heads = {"attn_q": TINY.heads, "attn_k": TINY.kv_heads}.get(parts[part])
        if heads:  # llama.cpp puts the rows of a head's two halves alternately
            halves = array.reshape(heads, 2, -1, TINY.width)
            array = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
        writer.add_tensor(f"blk.{layer}.{parts[part]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return params


def test_a_gguf_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    params = _write_gguf(path)
    config, read, tokenizer = load_model(path)
    assert config == TINY
    jax.tree.map(np.testing.assert_array_equal, read, params)
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo"
    assert tokenizer.end_ids == {0, 2}


def test_another_architecture_is_named(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "odd.gguf", architecture="mamba")
    with pytest.raises(ModelError, match=r"odd\.gguf: architecture 'mamba' is not supported"):
        load_model(tmp_path / "odd.gguf")


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.95, 0.999])
def test_a_truncated_gguf_is_named_in_one_line(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "cut.gguf"
    _write_gguf(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ModelError, match=r"cut\.gguf: .*fetch the model again") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_are_an_error_or_a_model_but_never_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "bent.gguf"
    _write_gguf(path)
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
