"""From an exception to an exit code and one line."""

from __future__ import annotations

from patchgym.trainer.errors import RunStopped, UserError


def classify(error: BaseException) -> tuple[int, str] | None:
    """(exit code, line) of an expected error; None for a fault of ours, which keeps its trace."""
    if isinstance(error, BaseExceptionGroup):
        found = [classify(inner) for inner in error.exceptions]
        known = [item for item in found if item is not None]
        # A fault of ours beside a known error still deserves its trace.
        return min(known, key=lambda item: -item[0]) if len(known) == len(found) else None
    if isinstance(error, SystemExit):
        return (error.code if isinstance(error.code, int) else 2), ""
    if isinstance(error, KeyboardInterrupt):
        return 130, "stopped"
    if isinstance(error, BrokenPipeError):
        return 141, ""
    if isinstance(error, UserError):
        return 2, str(error)
    if isinstance(error, RunStopped):
        return 1, str(error)
    if isinstance(error, ModuleNotFoundError) and _extra(error.name or ""):
        extra = _extra(error.name or "")
        return 2, f"this needs {error.name}: run pip install 'patchgym[{extra}]'"
    return _from_parts(error)


def _extra(module: str) -> str:
    root = module.partition(".")[0]
    train = {"jax", "flax", "optax", "orbax", "gguf", "tokenizers", "numpy", "matplotlib"}
    return "train" if root in train | {"plotext", "jinja2", "safetensors"} else ""


def _from_parts(error: BaseException) -> tuple[int, str] | None:
    from patchgym.datasets.task import TaskError
    from patchgym.sandbox import PatchgymError

    return (2, str(error)) if isinstance(error, TaskError | PatchgymError) else None
