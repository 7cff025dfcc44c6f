"""Tiny models of each family: transformers' settings, and the shape that we should read of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from patchgym.trainer.model import ModelConfig, RopeScaling
from patchgym.trainer.model.decoder import Params, head_weight, hidden_states
from patchgym.trainer.model.layout import layer_shapes

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCase:
    """One model, described twice."""

    settings: dict[str, Any]
    """transformers' configuration: `model_type` and what differs from its defaults."""
    config: ModelConfig
    """Ours."""


_SIZES = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA = ModelConfig(
    vocabulary=260, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=48, context=256,
    tied=False,
)  # fmt: skip


def _rope(kind: str, theta: float, **values: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **values}}


def _case(model_type: str, config: ModelConfig, **settings: Any) -> FamilyCase:
    shared = {
        "model_type": model_type,
        "num_hidden_layers": config.layers,
        "rms_norm_eps": config.eps,
        "tie_word_embeddings": config.tied,
    }
    return FamilyCase(settings=_SIZES | shared | settings, config=config)


_GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}

CASES = {
    "llama3": _case(
        "llama",
        replace(
            _LLAMA,
            rope_theta=500.0,
            rope=RopeScaling(kind="llama3", factor=8.0, original=16, low=1.0, high=4.0),
        ),
        **_rope("llama3", 500.0, factor=8.0, original_max_position_embeddings=16,
                low_freq_factor=1.0, high_freq_factor=4.0),
    ),
    "smollm2": _case(
        "llama",
        replace(_LLAMA, tied=True, heads=3, kv_heads=1, width=24, rope_theta=1e5),
        num_attention_heads=3, num_key_value_heads=1, hidden_size=24, **_rope("default", 1e5),
    ),
    "qwen2": _case(
        "qwen2",
        replace(_LLAMA, family="qwen2", rope_theta=1e6, eps=1e-6),
        **_rope("default", 1e6),
    ),
    "qwen2 tied, windows and yarn": _case(
        "qwen2",
        replace(
            _LLAMA, family="qwen2", tied=True, rope_theta=1e4, window=7, windowed=(False, True),
            rope=RopeScaling(kind="yarn", factor=4.0, original=32),
        ),
        use_sliding_window=True, sliding_window=7, max_window_layers=1,
        **_rope("yarn", 1e4, factor=4.0, original_max_position_embeddings=32),
    ),
    "qwen3": _case(
        "qwen3",
        replace(_LLAMA, family="qwen3", head_dim=16, rope_theta=1e6, eps=1e-6),
        head_dim=16, **_rope("default", 1e6),
    ),
    "gemma3": _case(
        "gemma3_text",
        replace(
            _LLAMA, family="gemma3", tied=True, layers=7, head_dim=16, eps=1e-6, rope_theta=1e6,
            rope=RopeScaling(kind="linear", factor=8.0), window=8, local_rope_theta=1e4,
            windowed=(True, True, True, True, True, False, True), query_scalar=24.0,
        ),
        head_dim=16, sliding_window=8, query_pre_attn_scalar=24, rope_parameters=_GEMMA_ROPE,
    ),
}  # fmt: skip
"""By a name for people."""


def random_params(config: ModelConfig, seed: int) -> Params:
    """Random float32 weights of transformers' scale in these cases, norms and biases among them."""
    random = np.random.default_rng(seed)

    def drawn(name: str, *shape: int) -> jax.Array:
        scale = 0.3 if name.endswith(("norm", "bias")) else 0.2
        values = random.normal(size=shape) * scale
        if name.endswith("norm") and not config.parts.offset_norms:
            values += 1
        return jnp.asarray(values, jnp.float32)

    layers = {
        name: drawn(name, config.layers, *reversed(shape))
        for name, shape in layer_shapes(config).items()
    }
    params: Params = {"embed": drawn("embed", config.vocabulary, config.width), "layers": layers}
    params["norm"] = drawn("norm", config.width)
    if not config.tied:
        params["head"] = drawn("head", config.width, config.vocabulary)
    return params


@partial(jax.jit, static_argnums=0)
def _logprobs(
    config: ModelConfig, params: Params, tokens: jax.Array, positions: jax.Array, ends: jax.Array
) -> jax.Array:
    hidden = hidden_states(config, params, tokens, positions, ends)
    return jax.nn.log_softmax(hidden @ head_weight(config, params), axis=-1)


def row_logprobs(
    config: ModelConfig, params: Params, tokens: Any, positions: Any, ends: Any
) -> Floats:
    """Logprobs [B, T, V] of rows of any mask; all three [B, T]."""
    arrays = (jnp.asarray(array, jnp.int32) for array in (tokens, positions, ends))
    return np.asarray(_logprobs(config, params, *arrays))


def causal_logprobs(config: ModelConfig, params: Params, tokens: Any) -> Floats:
    """Logprobs [B, T, V] of plain causal rows [B, T]."""
    rows = np.asarray(tokens)
    positions = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
    return row_logprobs(config, params, rows, positions, np.full_like(rows, rows.shape[1]))
