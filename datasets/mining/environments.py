"""Environments for candidates, built from what their commits declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from patchgym.datasets.building import BuildFailure, environment_of
from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import Recipe
from patchgym.sandbox import ImageStore

from .candidates import Candidate
from .errors import NoEnvironment
from .mine import PLAIN
from .store import key_of

PASSING = ("network", "timeout", "disk")
"""Failures of a build that another day may not have."""
UNKNOWN = "no_python_manifest"
"""A commit that declares nothing gets the plain environment."""


class BuiltEnvironments:
    """The environment that a recipe gives, else one that is built for the commit, else `PLAIN`."""

    def __init__(self, store: ImageStore, recipes: Sequence[Recipe]) -> None:
        """The first of the `recipes` that fits counts."""
        self._store = store
        self._recipes = recipes

    @property
    def key(self) -> str:
        """By the recipes."""
        return built_key(self._recipes)

    async def of(self, candidate: Candidate) -> Environment:
        """See `Environments`."""
        try:
            return await environment_of(
                candidate.repository,
                candidate.base,
                store=self._store,
                recipes=self._recipes,
                subproject=candidate.subproject,
            )
        except BuildFailure as failure:
            if failure.kind == UNKNOWN:
                return plain(candidate.subproject)
            lasting = failure.kind not in PASSING
            raise NoEnvironment(" ".join(str(failure).split()), lasting=lasting) from failure


def plain(subproject: str) -> Environment:
    """`PLAIN`; for a subproject, with its folder and its `src` where Python finds modules."""
    if not subproject:
        return PLAIN
    folder = f"{PLAIN.workdir}/{subproject}"
    return replace(PLAIN, variables={"PYTHONPATH": f"{folder}/src:{folder}"})


def built_key(recipes: Sequence[Recipe]) -> str:
    """Names how these recipes make environments."""
    return key_of({"recipes": [asdict(recipe) for recipe in recipes]})
