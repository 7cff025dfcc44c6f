"""Weights on their way from the learner to samplers, and whether they arrived.

Importing this package imports neither JAX nor vLLM.
"""

from .agreement import Agreement, AgreementError, compare_logprobs, learner_logprobs_of, probe
from .export import export_folder
from .sinks import EngineWeights, ServerWeights, WeightSink

__all__ = [
    "Agreement",
    "AgreementError",
    "EngineWeights",
    "ServerWeights",
    "WeightSink",
    "compare_logprobs",
    "export_folder",
    "learner_logprobs_of",
    "probe",
]
