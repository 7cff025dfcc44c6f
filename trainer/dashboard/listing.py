"""A table of a page, as its address says: which rows, in which order, which page of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

PAGE = 50
"""Rows a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What an address asks for; unknown words in it count as not given."""

    path: str
    sort: str
    """A key of the table's columns."""
    descending: bool
    page: int
    """From 1."""
    filters: Mapping[str, str]
    """By name, those that were given."""
    default: tuple[str, bool]
    """Order without a word: column, descending."""
    total: int = 0
    """Rows that fit the filters."""
    size: int = PAGE

    @property
    def pages(self) -> int:
        """How many there are; 1 at least."""
        return max(1, -(-self.total // self.size))

    @property
    def offset(self) -> int:
        """Rows before this page."""
        return (self.page - 1) * self.size

    @property
    def first(self) -> int:
        """Number of the page's first row, from 1; 0 without rows."""
        return min(self.offset + 1, self.total)

    @property
    def last(self) -> int:
        """Number of the page's last row."""
        return min(self.offset + self.size, self.total)

    def of(self, total: int) -> Listing:
        """The same for a table of `total` rows: its page is one that there is."""
        pages = max(1, -(-total // self.size))
        return replace(self, total=total, page=min(self.page, pages))

    def turned(self, page: int) -> str:
        """The address of another page."""
        return self._address(self.sort, self.descending, page)

    def sorted_by(self, column: str, *, descending_first: bool = True) -> str:
        """The address with the rows by `column`; the other way round when they are that already."""
        turn = not self.descending if column == self.sort else descending_first
        return self._address(column, turn, 1)

    def aria_sort(self, column: str) -> str:
        """For the heading of `column`; empty when the rows are not by it."""
        if column != self.sort:
            return ""
        return "descending" if self.descending else "ascending"

    def order(self, columns: Mapping[str, str], tie: str) -> str:
        """An ORDER BY clause; `columns` has SQL by key, `tie` orders what is equal."""
        way = "DESC" if self.descending else "ASC"
        return f"ORDER BY {columns[self.sort]} {way}, {tie} {way}"

    def _address(self, sort: str, descending: bool, page: int) -> str:
        words: dict[str, Any] = dict(self.filters)
        if (sort, descending) != self.default:
            words["sort"] = f"-{sort}" if descending else sort
        if page > 1:
            words["page"] = page
        return f"{self.path}?{urlencode(words)}" if words else self.path


def listing(
    request: Request,
    columns: Collection[str],
    default: str,
    filters: Collection[str] = (),
    *,
    size: int = PAGE,
    path: str = "",
) -> Listing:
    """What the query of `request` asks for: `sort` (a column, `-` before it for descending),
    `page`, and the named filters. `default` is an order in the same form, `path` the page's where
    it is another than that of `request`."""
    usual = (default.removeprefix("-"), default.startswith("-"))
    word = request.query_params.get("sort", "")
    column, descending = word.removeprefix("-"), word.startswith("-")
    if column not in columns:
        column, descending = usual
    page = request.query_params.get("page", "1")
    given = {name: request.query_params.get(name, "").strip() for name in filters}
    return Listing(
        path=path or request.url.path,
        sort=column,
        descending=descending,
        # A number of many digits would be no SQLite integer.
        page=max(1, int(page)) if page.isdecimal() and len(page) < 8 else 1,
        filters={name: value for name, value in given.items() if value},
        default=usual,
        size=size,
    )
