"""Fixtures of the adapters' tests."""

from shop_rows import parsers, prefix, ready, shop, store

__all__ = ["parsers", "prefix", "ready", "shop", "store"]
