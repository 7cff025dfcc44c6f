"""What one trajectory or row can fail by; it is counted, and the others go on."""

from __future__ import annotations


class FormatError(Exception):
    """This trajectory or row can't be written or read; says why in one line."""
