"""Folders and files are read as they were written, and damaged ones are named in one line."""

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
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.model.layout import EMBED, HEAD, NORM, layer_tensors, tensor_name


def _tensors(config: ModelConfig, params: Params) -> dict[str, npt.NDArray[np.float32]]:
    """`params` under Hugging Face's names and in its layout."""
    tensors = {EMBED: np.asarray(params["embed"]), NORM: np.asarray(params["norm"])}
    for ours, theirs in layer_tensors(config).items():
        for i in range(config.layers):
            array = np.asarray(params["layers"][ours][i])
            tensors[tensor_name(i, theirs)] = np.ascontiguousarray(array.T)
    if not config.tied:
        tensors[HEAD] = np.ascontiguousarray(np.asarray(params["head"]).T)
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
        ({"model_type": "gemma3"}, "'gemma3' is not supported .* image tower"),
        ({"model_type": "qwen2"}, "layers.0.self_attn.q_proj.bias is missing"),
        ({"attention_bias": True}, "attention_bias=true is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config=.* is not supported"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rotary scaling 'longrope' is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "mscale": 1}}, "'yarn' with mscale"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "'llama3' has no factor"),
        ({"rope_parameters": {"rope_theta": 5.0}}, "rope_theta is given twice and differs"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"hidden_size": 64}, "has shape"),
        ({"num_hidden_layers": 9}, "model.layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 1}, "model.layers.1.* is unknown to a llama"),
        ({"vocab_size": None}, "no usable value for vocab_size"),
        ({"vocab_size": "260"}, "no usable value for vocab_size"),
        ({"vocab_size": 300}, "so 260 tokens, its configuration says a vocabulary of 300"),
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


def test_a_tokenizer_of_another_model_is_named(tmp_path: Path) -> None:
    small = dataclasses.replace(TINY, vocabulary=259)
    _write_folder(tmp_path / "model", small, init_params(small, 3))
    with pytest.raises(
        ModelError, match=r"has token 259 \('in'\), config.json a vocabulary of 259"
    ):
        load_model(tmp_path / "model")


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
