"""A batch whose ids are not the model's is refused, where JAX would look up the nearest id."""

from __future__ import annotations

from collections.abc import Sequence

from .batching import TrainSequence


def check_token_ids(groups: Sequence[Sequence[TrainSequence]], vocabulary: int) -> None:
    """Raise ValueError, naming the id, for one that is not in 0 to `vocabulary` - 1."""
    for index, group in enumerate(groups):
        for sequence in group:
            for token in (int(sequence.tokens.min()), int(sequence.tokens.max())):
                if not 0 <= token < vocabulary:
                    raise ValueError(
                        f"a sequence of group {index} has the token id {token}, the model's ids "
                        f"are 0 to {vocabulary - 1}: it was made with another tokenizer; train "
                        "the model that sampled it, or sample again"
                    )
