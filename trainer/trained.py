"""The model of a run's checkpoint: its weights alone, without the optimizer's state.

Of a run with `learner.lora` a checkpoint holds the adapters; they are added to the run's model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .policies.tokenizers import model_path
from .run_folder import RunFolder, locked

if TYPE_CHECKING:
    # By their full names: pyright reaches these also as `trainer.*`, and takes them for others.
    from patchgym.trainer.lora import LoraConfig
    from patchgym.trainer.model import ModelConfig, Tokenizer
    from patchgym.trainer.model.decoder import Params

    from .checkpoint import CheckpointStore


def load_trained(
    folder: RunFolder, which: str = "latest"
) -> tuple[tuple[ModelConfig, Params, Tokenizer], int]:
    """The model with the weights of the checkpoint `which` (latest, best, a step), and its step.

    Blocks. RunError for a run under way, which is left alone; CheckpointError when there is no such
    checkpoint, or it can't be read.
    """
    from patchgym.trainer.model.load import load_model

    from .checkpoint import CheckpointStore

    config = folder.load_config()
    with locked(folder):  # opening the store removes what a killed process left half written
        store = CheckpointStore(folder.checkpoints, keep=config.checkpoint.keep)
        try:
            step = store.choose(which)
            model, params, tokenizer = load_model(model_path(config.model.path))
            given: Any = config.learner.lora, model, params
            weights = _trained(store, step, *given)
        finally:
            store.close()
    found: Any = model, weights, tokenizer
    return found, step


def _trained(
    store: CheckpointStore, step: int, lora: LoraConfig, model: ModelConfig, base: Params
) -> Params:
    """The weights that a sampler had at `step`, of a run that began with `base`."""
    from .lora.adapters import init_adapters
    from .model.execution import Execution
    from .row_programs import Weights, merged_weights

    if not lora.rank:
        return store.params(base, step=step)
    settings: Any = lora
    adapters = store.params(init_adapters(settings, model, 0), step=step)
    whole: Params = merged_weights(Execution(lora=settings), Weights(adapters, base))
    return whole
