"""Numbers for people, and tables as an address asks for them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from patchgym.trainer.dashboard.listing import Listing, listing
from patchgym.trainer.dashboard.summaries import sparkline
from patchgym.trainer.dashboard.words import duration, number, percent, short_count, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.00004, "0.04 ms"), (0.25, "250 ms"), (1.234, "1.23 s"), (59.97, "60 s"),
        (75, "1 m 15 s"), (3600, "1 h 00 m"), (7384, "2 h 03 m"), (200_000, "2 d 07 h"),
        (None, "–"), (math.nan, "–"),
    ],
)  # fmt: skip
def test_durations_are_told_in_the_unit_that_fits(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (999, "999"), (9_999, "9,999"), (10_000, "10k"), (52_500_000, "52.5M"), (None, "–")],
)
def test_large_counts_are_shortened(value: float | None, words: str) -> None:
    assert short_count(value) == words


def test_small_differences_have_no_sign_of_their_own() -> None:
    assert number(-0.001) == "0.00"
    assert percent(math.inf) == "–"
    assert size(3 << 20) == "3 MiB"


def asked(query: str, total: int = 230) -> Listing:
    scope = {
        "type": "http", "path": "/t", "query_string": query.encode(), "headers": [],
        "server": ("127.0.0.1", 80), "scheme": "http", "method": "GET",
    }  # fmt: skip
    return listing(Request(scope), ("a", "b"), "-a", ("q",)).of(total)


def test_an_address_says_order_page_and_filters_and_is_short_where_it_can_be() -> None:
    table = asked("sort=b&page=2&q=x+y&other=1")
    assert (table.sort, table.descending, table.page) == ("b", False, 2)
    assert table.turned(3) == "/t?q=x+y&sort=b&page=3"
    assert table.sorted_by("b") == "/t?q=x+y&sort=-b"
    assert asked("").sorted_by("a") == "/t?sort=a"
    assert asked("").turned(1) == "/t"
    assert (table.first, table.last, table.pages) == (51, 100, 5)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 10**6))
def test_no_address_asks_for_what_there_is_not(sort: str, page: str, total: int) -> None:
    from urllib.parse import urlencode

    table = asked(urlencode({"sort": sort, "page": page}, errors="replace"), total)
    assert table.sort in ("a", "b")
    assert 1 <= table.page <= table.pages
    assert 0 <= table.offset <= max(0, total)


@given(st.lists(st.one_of(st.none(), st.floats(-5, 5))))
def test_a_small_curve_stays_in_its_box(values: list[float | None]) -> None:
    for point in sparkline(values).split():
        across, down = (float(word) for word in point.split(","))
        assert 0 <= across <= 120
        assert 0 <= down <= 22
