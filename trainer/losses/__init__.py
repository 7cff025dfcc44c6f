"""Policy losses: pure functions of log-probabilities, and log-probabilities of hidden states."""

from .logprobs import token_logprobs
from .penalties import kl_terms
from .sequences import sequence_means, sequence_sums
from .sums import RowTokens, TokenSums, row_sums
from .surrogates import Factors, cispo, clipped, divergence_masked, gated, plain, ppo, sequence_ppo

__all__ = [
    "Factors",
    "RowTokens",
    "TokenSums",
    "cispo",
    "clipped",
    "divergence_masked",
    "gated",
    "kl_terms",
    "plain",
    "ppo",
    "row_sums",
    "sequence_means",
    "sequence_ppo",
    "sequence_sums",
    "token_logprobs",
]
