"""Replacements and near matches, on text alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.agent.repository.near import nearest
from patchgym.agent.repository.replacing import replace_once

LETTERS = st.text(st.sampled_from("ab \n\té"), max_size=30)


def count(text: str, part: str) -> int:
    """Places where a part is, overlapping ones too."""
    return sum(text.startswith(part, at) for at in range(len(text)))


@settings(deadline=None)
@given(LETTERS, LETTERS.filter(bool), LETTERS)
def test_it_does_what_str_replace_does_where_there_is_one_match(
    text: str, search: str, replace: str
) -> None:
    found = replace_once(text.encode(), search, replace)
    assert found.matches == count(text, search)
    if found.matches == 1:
        assert found.data == text.replace(search, replace).encode()
        assert found.lines == (text[: text.index(search)].count("\n") + 1,)
    else:
        assert found.data is None


@settings(deadline=None)
@given(st.lists(st.text("ab"), min_size=2), st.data())
def test_crlf_stays_crlf(lines: list[str], data: st.DataObject) -> None:
    text = "".join(f"{line}\n" for line in lines)
    at = data.draw(st.integers(0, len(text) - 1))
    search = text[at : data.draw(st.integers(at + 1, len(text)))]
    replace = data.draw(st.text("ab\n", max_size=5))
    found = replace_once(text.replace("\n", "\r\n").encode(), search, replace)
    assert found.matches == count(text, search)
    if found.data is not None:
        assert found.data.decode() == text.replace(search, replace).replace("\n", "\r\n")


@settings(deadline=None)
@given(st.binary(max_size=40), LETTERS.filter(bool), LETTERS)
def test_bytes_around_a_match_are_kept(data: bytes, search: str, replace: str) -> None:
    whole = data + search.encode() + data[::-1]
    found = replace_once(whole, search, replace)
    if found.data is not None and b"\r" not in whole:
        assert found.data == data + replace.encode() + data[::-1]


def test_mixed_line_ends_are_tried_both_ways() -> None:
    mixed = b"a\r\nb\nc\r\nd\n"
    assert replace_once(mixed, "b\nc", "x\ny").data == b"a\r\nx\ny\r\nd\n"
    assert replace_once(mixed, "a\nb", "x\ny").data == b"x\r\ny\nc\r\nd\n"
    assert replace_once(mixed, "c\nd", "").data == b"a\r\nb\n\n"


def test_many_matches_are_counted_to_a_limit() -> None:
    found = replace_once(b"x\n" * 100_000, "x", "y")
    assert (found.matches, found.lines) == (1000, tuple(range(1, 11)))


@pytest.mark.parametrize(
    ("text", "search", "place", "blanks"),
    [
        (
            "a\n\tb = 1\nc\n",
            "    b = 1\nc",
            (2, 3),
            "line 2 is indented by 1 tab, yours by 4 spaces",
        ),
        ("a\nb  \n", "a\nb\n", (1, 2), "line 2 ends with 2 spaces, yours with nothing"),
        ("f(a,b)\n", "f(a, b)", (1, 1), "line 1 has other blanks between its words"),
    ],
)
def test_differences_in_blanks_are_named(
    text: str, search: str, place: tuple[int, int], blanks: str
) -> None:
    near = nearest(text, search)
    assert near is not None
    assert (near.first, near.last) == place
    assert near.blanks == blanks


def test_the_most_alike_place_is_found() -> None:
    text = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(300))
    near = nearest(text, "def f217(x):\n    retrun x + 217")
    assert near is not None
    assert (near.first, near.last, near.blanks) == (217 * 4 + 1, 217 * 4 + 2, "")
    assert near.diff == (" def f217(x):", "-    retrun x + 217", "+    return x + 217")
    near = nearest(text, "    retrun x + 217")
    assert near is not None
    assert near.first == 217 * 4 + 2


@pytest.mark.parametrize(("text", "search"), [("", "a"), ("abc\n", "xyz"), ("abc\n", "\n \n")])
def test_nothing_alike_is_said_to_be_so(text: str, search: str) -> None:
    assert nearest(text, search) is None


def test_the_work_is_bounded() -> None:
    text = "".join(f"value_{n} = compute(value_{n - 1}, {n})\n" for n in range(100_000))
    search = "".join(f"valve_{n} = computed(valve_{n}, {n})\n" for n in range(1000))
    started = time.process_time()
    nearest(text, search)
    nearest(text, search.replace("\n", ""))
    nearest("x" * (8 << 20), "y" * (1 << 20))
    assert time.process_time() - started < 5
