"""LoRA: what is trained are low-rank additions to the matrices of the layers, the model stays.

    LoraConfig ──► init_adapters ──► merged_layer (in each layer) ──► gradient of the adapters
                        ▲
    load_peft ──────────┴──► export_peft ──► PEFT, vLLM

Importing this package imports neither JAX nor NumPy: `adapters` and `peft`, which do, are named by
their modules.
"""

from .config import TARGETS, LoraConfig, adapter_count, adapter_shapes

__all__ = ["TARGETS", "LoraConfig", "adapter_count", "adapter_shapes"]
