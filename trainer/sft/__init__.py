"""Supervised fine-tuning: a warm start from conversations, and from a run's best rollouts.

    sources -> conversations -> split -> rows as in training -> nll -> checkpoints, exported weights
    files.py stored.py gold.py  dataset.py                     training.py

Importing this package imports no JAX.
"""

from .config import SftConfig, load_sft_config, sft_to_toml
from .dataset import Dataset, Example, Gathered, Plan, split
from .folder import SftFolder, is_supervised, open_supervised
from .gathering import gather, pinned
from .record import read_summary
from .selection import Candidate, choose
from .session import dry_run, train
from .training import SftLoop

__all__ = [
    "Candidate",
    "Dataset",
    "Example",
    "Gathered",
    "Plan",
    "SftConfig",
    "SftFolder",
    "SftLoop",
    "choose",
    "dry_run",
    "gather",
    "is_supervised",
    "load_sft_config",
    "open_supervised",
    "pinned",
    "read_summary",
    "sft_to_toml",
    "split",
    "train",
]
