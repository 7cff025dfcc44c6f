"""The model: its shape, its decoder, and the readers of its weights and tokenizer.

Importing this package imports no JAX: `decoder`, which does, is named by its module.
"""

from .config import ModelConfig
from .errors import ModelError
from .load import load_model
from .rope import RopeScaling
from .tokenizer import Tokenizer
from .weights import ensure_weights

__all__ = ["ModelConfig", "ModelError", "RopeScaling", "Tokenizer", "ensure_weights", "load_model"]
