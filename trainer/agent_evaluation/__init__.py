"""Evaluation of a policy that acts: rollouts of every task, fresh verdicts, one report."""

from .estimates import Estimate, estimate, pass_at_k
from .folder import EvaluationFolder, is_evaluation, open_evaluation
from .report import report_of
from .run import AgentEvaluation, Watcher, agent_section, settled
from .samples import Sample, read_samples, sample_of
from .settings import AgentSettings, resolve_settings
from .source import SampleSource, sample_id

__all__ = [
    "AgentEvaluation",
    "AgentSettings",
    "Estimate",
    "EvaluationFolder",
    "Sample",
    "SampleSource",
    "Watcher",
    "agent_section",
    "estimate",
    "is_evaluation",
    "open_evaluation",
    "pass_at_k",
    "read_samples",
    "report_of",
    "resolve_settings",
    "sample_id",
    "sample_of",
    "settled",
]
