"""Runs inside vLLM's workers: takes the learner's weights, and nothing that doesn't fit.

vLLM imports this module by name, in the server's own environment, with
`--worker-extension-cls patchgym.agent.policies.vllm_worker.WorkerExtension` and
`--weight-transfer-config '{"backend": "patchgym-file"}'`. Nothing else imports it.

Importing it has one effect: the transport `patchgym-file` is registered with vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .tensor_files import Shapes, difference, file_shapes, folder_shapes

BACKEND = "patchgym-file"
"""The transport's name in vLLM's weight transfer."""

_base: Any = import_module("vllm.distributed.weight_transfer.base")
_factory: Any = import_module("vllm.distributed.weight_transfer.factory")


@dataclass
class InitInfo(_base.WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing has to be agreed on before."""


@dataclass
class UpdateInfo(_base.WeightTransferUpdateInfo):  # type: ignore[misc]
    """Which file to load."""

    path: str = ""


class FileTransfer(_base.WeightTransferEngine):  # type: ignore[misc]
    """Loads a safetensors file with Hugging Face's names, whole, between two steps."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Nothing to open."""

    def start_weight_update(self) -> None:
        """Prepare every layer for new values."""
        reload: Any = import_module("vllm.model_executor.model_loader.reload")
        reload.initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Read the file into the model."""
        self.model.load_weights(_tensors(Path(update_info.path)))

    def finish_weight_update(self) -> None:
        """Repack what kernels keep in a layout of their own, the tied head included."""
        reload: Any = import_module("vllm.model_executor.model_loader.reload")
        reload.finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_head(self.model)

    def shutdown(self) -> None:
        """Nothing to close."""


if BACKEND not in _factory.WeightTransferEngineFactory._registry:
    _factory.WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)


class WorkerExtension:
    """Methods added to vLLM's worker, to be called through `collective_rpc`."""

    model_runner: Any
    model_config: Any

    def patchgym_refuse(self, path: str) -> str:
        """Why the file can't be loaded, empty when it can. An update that fails ends the engine."""
        try:
            wanted = self._wanted()
            return difference(wanted, file_shapes(Path(path))) if wanted else ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{type(error).__name__}: {error}"

    def patchgym_load(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Load arrays of this process, taken over by dlpack without a copy of their own."""
        torch: Any = import_module("torch")
        worker: Any = self
        taken = ((name, torch.from_dlpack(array)) for name, array in tensors)
        worker.reload_weights(weights_iterator=taken)
        repack_tied_head(self.model_runner.get_model())

    def _wanted(self) -> Shapes:
        """Names and shapes of the folder that the model came from; none when it isn't a folder."""
        folder = Path(self.model_config.model)
        return folder_shapes(folder) if folder.is_dir() else {}


def repack_tied_head(model: Any) -> None:
    """Refresh the packed copy of a tied output head, which no reload touches on CPU (0.32)."""
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    safetensors: Any = import_module("safetensors")
    with safetensors.safe_open(file, framework="pt", device="cpu") as opened:
        for name in opened.keys():
            yield name, opened.get_tensor(name)
