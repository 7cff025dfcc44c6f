"""One cluster of two nodes for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ray_nodes import RayNodes, ray_nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """Two nodes with sandboxes; a test that takes one away gives one back."""
    with ray_nodes(2) as nodes:
        yield nodes
