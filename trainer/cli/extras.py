"""What a base install can't do, said at once and not minutes later."""

from __future__ import annotations

import importlib.util

from patchgym.trainer.errors import UserError

_TRAIN = ("jax", "flax", "optax", "orbax", "gguf", "tokenizers", "matplotlib", "plotext")


def need_train(what: str) -> None:
    """Raise UserError when a module of the extra `train` is missing; `what` needs it."""
    missing = [module for module in _TRAIN if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(f"{what} needs {', '.join(missing)}: run pip install 'patchgym[train]'")
