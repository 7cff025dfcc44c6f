"""A decoder and a tokenizer small enough to run everything in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model import ModelConfig, Tokenizer
from patchgym.trainer.model.decoder import Params, head_weight, hidden_states
from patchgym.trainer.model.tokenizer import BYTE_OF_LETTER, byte_level_bpe

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TINY = ModelConfig(
    vocabulary=260, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=48, context=1024
)


def byte_tokenizer() -> Tokenizer:
    """Three control tokens, one token a byte, and `in`, which is merged."""
    backend = byte_level_bpe(
        tokens=[*CONTROL, *BYTE_OF_LETTER, "in"], merges=[("i", "n")], control=CONTROL
    )
    return Tokenizer(backend, template=TEMPLATE, end_of_turn=2, end_of_text=0)


@partial(jax.jit, static_argnums=0)
def _logits(config: ModelConfig, params: Params, tokens: jax.Array) -> jax.Array:
    """Logits [T, V] of one causal row [T]."""
    positions = jnp.arange(len(tokens), dtype=jnp.int32)[None]
    ends = jnp.full_like(positions, len(tokens))
    hidden = hidden_states(config, params, tokens[None], positions, ends)
    return hidden[0] @ head_weight(config, params)


def full_forward(
    config: ModelConfig, params: Params, tokens: Sequence[int], temperature: float = 1.0
) -> npt.NDArray[np.float32]:
    """Logprobs [T, V] of what follows each token, by one pass of the learner's decoder."""
    padded = np.zeros(-(-len(tokens) // 128) * 128, np.int32)
    padded[: len(tokens)] = tokens
    logits = _logits(config, params, jnp.asarray(padded))[: len(tokens)]
    return np.asarray(jax.nn.log_softmax(logits / temperature, axis=-1))


def expected_logprobs(
    config: ModelConfig, params: Params, request: SampleRequest, completion: Completion
) -> npt.NDArray[np.float32]:
    """What a completion's logprobs should be under `params`."""
    scores = full_forward(
        config, params, (*request.tokens, *completion.tokens), request.temperature
    )
    first = len(request.tokens) - 1
    return np.asarray([scores[first + i, token] for i, token in enumerate(completion.tokens)])
