"""How a learner lies on many devices: one mesh with an axis each for FSDP, context and tensor.

    MeshConfig ──► make_layout ──► Layout: where each weight and activation lies
                                     ├─► embed_tokens, read_logprobs: the vocabulary, split
                                     └─► gathered: a layer's weights, when they are needed

Importing this package imports no JAX: `layout` and `vocabulary`, which do, are named by their
modules.
"""

from .config import MeshConfig

__all__ = ["MeshConfig"]
