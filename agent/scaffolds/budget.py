"""What a policy is shown of an environment's output: safe text of a bounded number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from patchgym.agent.chat import ChatTokenizer, neutralize

_CHARACTERS_PER_TOKEN = 8
"""More than text has: what is over it can be cut before anything is tokenized."""

_NOTE_TOKENS = 24
"""Room for the words that say what was left out."""


def shares(tokenizer: ChatTokenizer, texts: Sequence[str], budget: int) -> list[str]:
    """`texts` shortened so that they have about `budget` tokens together; what the short ones leave
    goes to the long ones."""
    shown = [""] * len(texts)
    left, waiting = budget, len(texts)
    for place in sorted(range(len(texts)), key=lambda i: len(texts[i])):
        shown[place], used = shorten(tokenizer, texts[place], left // waiting)
        left, waiting = max(0, left - used), waiting - 1
    return shown


def shorten(tokenizer: ChatTokenizer, text: str, budget: int) -> tuple[str, int]:
    """`text` with control tokens broken, cut to about `budget` tokens, and its tokens' number.

    Head and tail are kept, and the text says how much is left out between them. Costs as much as
    the budget, not as the text: characters are cut before anything is tokenized.
    """
    side = max(1, budget) * _CHARACTERS_PER_TOKEN
    if len(text) <= 2 * side:
        whole = safe(tokenizer, text)
        ids = tokenizer.encode(whole)
        if len(ids) <= budget:
            return whole, len(ids)
    room = max(2, budget - _NOTE_TOKENS)
    head = safe(tokenizer, text[:side])
    tail = safe(tokenizer, text[-side:])
    shown, count = _cut(tokenizer, text, (head, tail), room)
    # Decoding a cut and encoding it again may give a few tokens more than the cut had.
    for _ in range(8):
        if count <= budget or room <= 2:
            break
        room = max(2, room - (count - budget))
        shown, count = _cut(tokenizer, text, (head, tail), room)
    return shown, count


def _cut(tokenizer: ChatTokenizer, text: str, ends: tuple[str, str], room: int) -> tuple[str, int]:
    """`room` tokens of both ends of `text` with a note between them, and the tokens' number."""
    first = _first_tokens(tokenizer, ends[0], room - room // 2)
    last = _last_tokens(tokenizer, ends[1], room // 2)
    shown = safe(tokenizer, f"{first}\n{_left_out(text, first, last)}\n{last}")
    return shown, len(tokenizer.encode(shown))


def _left_out(text: str, first: str, last: str) -> str:
    count = max(0, len(text) - len(first) - len(last))
    return f"[{count:,} of {len(text):,} characters left out here]"


def _first_tokens(tokenizer: ChatTokenizer, text: str, count: int) -> str:
    ids = tokenizer.encode(text)
    return text if len(ids) <= count else tokenizer.decode(ids[:count]).rstrip("\ufffd")


def _last_tokens(tokenizer: ChatTokenizer, text: str, count: int) -> str:
    ids = tokenizer.encode(text)
    return text if len(ids) <= count else tokenizer.decode(ids[-count:]).lstrip("\ufffd")


def safe(tokenizer: ChatTokenizer, text: str) -> str:
    """`text` that spells no control token, also none that appears only once it is normalized."""
    quiet = neutralize(tokenizer, text)
    control = control_ids(tokenizer)
    if control.isdisjoint(tokenizer.encode(quiet)):
        return quiet
    spaced = neutralize(tokenizer, " ".join(quiet))
    if control.isdisjoint(tokenizer.encode(spaced)):
        return spaced
    return f"[{len(text):,} characters that can't be shown]"


@lru_cache(maxsize=8)
def control_ids(tokenizer: ChatTokenizer) -> frozenset[int]:
    """The control tokens' ids."""
    spelled = (tokenizer.encode(token) for token in tokenizer.control_tokens())
    return frozenset(ids[0] for ids in spelled if len(ids) == 1)
