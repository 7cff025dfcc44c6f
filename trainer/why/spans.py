"""Seconds in words."""

from __future__ import annotations


def span(seconds: float) -> str:
    """With about two digits: `0.04 s`, `3.1 s`, `94 s`, `12 min`, `3.2 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
