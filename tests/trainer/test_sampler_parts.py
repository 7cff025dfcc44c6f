"""The sampler's parts that need no model: prefix cache, stop texts, windows, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tiny_model import byte_tokenizer

from patchgym.agent.policy import SampleRequest
from patchgym.trainer.sampler.engine import CHUNKS, chunks_for, window_for
from patchgym.trainer.sampler.prefix_cache import Prefix, PrefixCache
from patchgym.trainer.sampler.turn import Turn
from patchgym.trainer.sampler_config import SamplerConfig

TOKENIZER = byte_tokenizer()
BYTES_A_TOKEN = 2 * 2 * 1 * 4 * 4


def _prefix(tokens: Sequence[int]) -> Prefix:
    stored = np.zeros((2, 2, 1, len(tokens), 4), np.float32)
    return Prefix(tokens=np.asarray(tokens, np.int32), stored=stored)


def test_the_longest_common_beginning_is_found() -> None:
    cache = PrefixCache(1 << 20)
    for tokens in ([*range(20)], [*range(12), 99, 98], [50] * 30):
        cache.add(_prefix(tokens))
    found, shared = cache.find([*range(15), 7])
    assert found is not None and found.tokens.tolist() == [*range(20)]
    assert shared == 15
    assert cache.find([*range(5)]) == (None, 0)


def test_an_entry_takes_the_place_of_its_own_beginnings() -> None:
    cache = PrefixCache(1 << 20)
    cache.add(_prefix(range(10)))
    assert not cache.worth_adding(range(10)) and cache.worth_adding(range(11))
    cache.add(_prefix(range(20)))
    assert cache.bytes == 20 * BYTES_A_TOKEN
    assert not cache.worth_adding(range(15))


def test_the_least_recently_used_goes_first_and_the_limit_holds() -> None:
    cache = PrefixCache(30 * BYTES_A_TOKEN)
    for start in (0, 100, 200):
        cache.add(_prefix(range(start, start + 10)))
    assert cache.find(range(10))[1] == 10
    cache.add(_prefix(range(300, 310)))
    assert cache.bytes == 30 * BYTES_A_TOKEN
    assert cache.find(range(10))[1] == 10
    assert cache.find(range(100, 110)) == (None, 0)
    cache.add(_prefix(range(1000, 1031)))
    assert cache.find(range(1000, 1031)) == (None, 0)  # larger than the limit
    cache.clear(4)
    assert (cache.bytes, cache.version) == (0, 4)


def _turn(stop: tuple[str, ...], seed: int = 0, context: int = 1) -> Turn:
    request = SampleRequest(
        rollout_id="", tokens=(5,) * context, max_new_tokens=50, stop=stop, seed=seed
    )
    return Turn(request, TOKENIZER, lambda outcome: None)


def test_a_stop_text_is_found_across_tokens_and_inside_characters() -> None:
    turn = _turn(("```\n", "é!"))
    finishes = [turn.accept(token, -1.0) for token in TOKENIZER.encode("a``b é! more")]
    place = len("a``b é!".encode()) - 1
    assert finishes.index("stop") == place


def test_an_empty_stop_text_stops_nothing() -> None:
    assert _turn(("",)).accept(7, -1.0) is None


def test_draws_follow_from_seed_and_place_alone() -> None:
    same, again = _turn((), seed=3), _turn((), seed=3)
    np.testing.assert_array_equal(same.draws, again.draws)
    for other in (_turn((), seed=4), _turn((), seed=3, context=2), _turn((), seed=-3)):
        assert not np.array_equal(same.draws, other.draws)
    assert same.draws.min() >= 0 and same.draws.max() < 1


def test_pieces_cover_a_context_and_only_the_last_is_padded() -> None:
    for tokens in range(700):
        chunks = chunks_for(tokens)
        assert sum(chunks) >= tokens > sum(chunks[:-1]) or not tokens
        assert set(chunks) <= set(CHUNKS)
    assert window_for(1) == 256 and window_for(257) == 384
    assert window_for(40_000) == 40_960


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"context": 0},
        {"steps_per_launch": -1},
        {"prefix_cache_mib": -1},
        {"dtype": "float16"},
    ],
)
def test_settings_that_can_not_work_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
        SamplerConfig(**wrong)
