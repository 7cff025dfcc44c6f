"""Exact prefix-tree batches: the tokens of a group stored once, and what the loss reads of them.

    branches ──► split ──► prefix_tree ──► first_fit ──► tree_row         (`tree_rows` does it all)

Importing this package imports no JAX.
"""

from .layout import Branch, PrefixTree, Reads, prefix_tree
from .rows import TreeRow, empty_row, first_fit, lengthened, split, tree_row, tree_rows

__all__ = [
    "Branch",
    "PrefixTree",
    "Reads",
    "TreeRow",
    "empty_row",
    "first_fit",
    "lengthened",
    "prefix_tree",
    "split",
    "tree_row",
    "tree_rows",
]
