"""Do sampler and learner agree on the probability of the same tokens?

The one check that finds every kind of stale or half-taken weights: a tied head that was not
refreshed, a prefix cache of old weights, keys and values kept across a push. In float32 the two
differ by about 1e-4; in bfloat16 by 0.03 on average and up to 0.7, which is what truncated
importance sampling is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from patchgym.agent.policy import Completion, Policy, SampleRequest
from patchgym.sandbox.errors import PatchgymError
from patchgym.trainer.model.config import ModelConfig

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params

FLOAT32_LIMIT = 1e-3
"""Nats: the most by which one token's logprob may differ where both sides compute in float32."""

BFLOAT16_MEAN_LIMIT = 0.1
"""Nats: a mean difference past this one is no rounding, the sampler has other weights."""


class AgreementError(PatchgymError):
    """Sampler and learner differ more than numerics explain: they don't run the same weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the logprobs of the same sampled tokens lie apart, in nats."""

    tokens: int
    """How many tokens were compared."""
    mean: float
    """Mean absolute difference."""
    maximum: float
    """Largest absolute difference."""

    def alarm(self, *, mean: float | None = None, maximum: float | None = None) -> str | None:
        """What is wrong in one line, or None while both are within their limits."""
        for word, value, limit in (("mean", self.mean, mean), ("largest", self.maximum, maximum)):
            # Written so that NaN raises the alarm.
            if limit is not None and not value <= limit:
                return (
                    f"sampler and learner differ by {value:.4g} nats ({word} of {self.tokens}"
                    f" tokens), more than {limit:g}: they don't run the same weights"
                )
        return None

    def check(self, *, mean: float | None = None, maximum: float | None = None) -> Agreement:
        """Itself; AgreementError past a limit."""
        words = self.alarm(mean=mean, maximum=maximum)
        if words is not None:
            raise AgreementError(words)
        return self


def compare_logprobs(
    sampler_logprobs: npt.ArrayLike,
    learner_logprobs: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
) -> Agreement:
    """Compare logprobs of the same tokens, of any equal shape; `mask` is true where they count.

    ValueError when the shapes differ. Not the learner's `mismatch_kl`, which is a mean over a
    batch: one stale token among thousands shows in the maximum.
    """
    theirs, ours = (
        np.asarray(sampler_logprobs, np.float64),
        np.asarray(learner_logprobs, np.float64),
    )
    if theirs.shape != ours.shape:
        raise ValueError(f"logprobs of shapes {theirs.shape} and {ours.shape} can't be compared")
    apart = np.abs(theirs - ours)
    apart = apart.ravel() if mask is None else apart[np.asarray(mask, bool)]
    if not apart.size:
        return Agreement(tokens=0, mean=0.0, maximum=0.0)
    return Agreement(tokens=apart.size, mean=float(apart.mean()), maximum=float(apart.max()))


async def probe(
    policy: Policy,
    config: ModelConfig,
    params: Params,
    context: tuple[int, ...],
    *,
    tokens: int = 16,
    seed: int = 0,
) -> Agreement:
    """Sample one turn and compare it with a pass of the learner's decoder over `params`.

    What to do after every push. AgreementError when weights changed in the middle of the turn.
    """
    import anyio.to_thread

    request = SampleRequest(rollout_id="probe", tokens=context, max_new_tokens=tokens, seed=seed)
    completion = await policy.sample(request)
    if completion.spans:
        raise AgreementError("weights changed while the probe was sampled: probe again")
    expected = await anyio.to_thread.run_sync(
        learner_logprobs_of, config, params, request, completion
    )
    return compare_logprobs(completion.logprobs, expected)


def learner_logprobs_of(
    config: ModelConfig, params: Params, request: SampleRequest, completion: Completion
) -> npt.NDArray[np.float32]:
    """The learner's logprob of each sampled token, at the request's temperature; blocks.

    At temperature 0 the choice was certain: zeros.
    """
    if request.temperature == 0:
        return np.zeros(len(completion.tokens), np.float32)
    import jax
    import jax.numpy as jnp

    from patchgym.trainer.model.decoder import head_weight, hidden_states

    row = (*request.tokens, *completion.tokens)
    first = len(request.tokens) - 1
    length = -(-len(row) // 128) * 128  # few shapes, few compilations
    padded = np.zeros((1, length), np.int32)
    padded[0, : len(row)] = row
    positions = jnp.arange(length, dtype=jnp.int32)[None]
    ends = jnp.maximum(positions + 1, len(row))
    hidden = hidden_states(config, params, jnp.asarray(padded), positions, ends)[0]
    logits = hidden[first : len(row) - 1] @ head_weight(config, params)
    scores = np.asarray(jax.nn.log_softmax(logits / request.temperature, axis=-1))
    chosen: npt.NDArray[np.float32] = scores[
        np.arange(len(completion.tokens)), list(completion.tokens)
    ]
    return chosen
