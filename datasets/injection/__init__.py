"""Bugs put into code that tests cover, on purpose and by chance of a seed, to make tasks of."""

from .ground import environment_for
from .inject import InjectionConfig, Progress, inject
from .mutations import MUTATIONS
from .origin import Origin, open_origin
from .report import ENDINGS, Injection, Statistics
from .trials import Limits

__all__ = [
    "ENDINGS",
    "MUTATIONS",
    "Injection",
    "InjectionConfig",
    "Limits",
    "Origin",
    "Progress",
    "Statistics",
    "environment_for",
    "inject",
    "open_origin",
]
