"""Addresses of the viewer's pages, for templates."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from patchgym.trainer.dashboard.pages import run_url

from .filters import Filters


class Links:
    """Of one run; they keep what the list is asked for."""

    def __init__(self, run: str, filters: Filters) -> None:
        self._run, self._filters = run, filters
        self._base = run_url(run, "trajectories")
        self._query = filters.query()

    def list(self, **changes: str) -> str:
        """The list, asked for with `changes`; its first page."""
        return self._with(self._base, self._filters.query(**changes))

    def page(self, **edge: str) -> str:
        """The list's page at an edge."""
        query = "&".join(filter(None, (self._query, urlencode(edge))))
        return self._with(self._base, query)

    def sorted(self, column: str, *, first: str = "-") -> str:
        """The list by `column`; the other way round where it is so already."""
        now = self._filters.sort
        other = {"-": "", "": "-"}[first]
        return self.list(sort=f"{other if now == first + column else first}{column}")

    def rollout(self, name: str) -> str:
        """A rollout's page."""
        return self._with(f"{self._base}/{quote(name, safe='')}", self._query)

    def part(self, name: str, part: str, **more: str) -> str:
        """A part of a rollout as plain text."""
        query = urlencode({"part": part, **more})
        return f"{self._base}/{quote(name, safe='')}/text?{query}"

    def tokens(self, name: str) -> str:
        """Where a rollout's ids are."""
        return f"{self._base}/{quote(name, safe='')}/tokens"

    def group(self, group_id: str) -> str:
        """A group's page."""
        return run_url(self._run, f"groups/{quote(group_id, safe='')}")

    @staticmethod
    def _with(address: str, query: str) -> str:
        return f"{address}?{query}" if query else address
