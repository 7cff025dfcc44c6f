"""Numbers on the command line, with errors that say what would do."""

from __future__ import annotations

import argparse
import math


def positive(word: str) -> int:
    """A whole number from 1."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word}: at least 1")
    return number


def count(word: str) -> int:
    """A whole number from 0."""
    number = int(word)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{word}: at least 0")
    return number


def seconds(word: str) -> float:
    """More than 0, and not endless."""
    number = float(word)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{word}: more than 0 seconds")
    return number


def share(word: str) -> float:
    """From 0 to 1."""
    number = float(word)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{word}: between 0 and 1")
    return number
