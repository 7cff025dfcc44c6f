"""The embedded sampler: continuous batching on JAX, weights published between turns."""

from .errors import ContextOverflow, SamplerError
from .sampler import JaxSampler
from .statistics import SamplerStatistics

__all__ = ["ContextOverflow", "JaxSampler", "SamplerError", "SamplerStatistics"]
