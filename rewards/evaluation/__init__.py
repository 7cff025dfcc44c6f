"""Evaluation: predictions judged, one report, comparisons of two."""

from .compare import Comparison, Scores, compare, read_scores, scores_of
from .errors import EvaluationError
from .predictions import BUILT_IN, Prediction, Predictions, built_in, read_predictions
from .report import Evaluation, Judged, Rate, document, write_report
from .run import Attempt, EvaluationConfig, Watcher, evaluate
from .store import Store

__all__ = [
    "BUILT_IN",
    "Attempt",
    "Comparison",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationError",
    "Judged",
    "Prediction",
    "Predictions",
    "Rate",
    "Scores",
    "Store",
    "Watcher",
    "built_in",
    "compare",
    "document",
    "evaluate",
    "read_predictions",
    "read_scores",
    "scores_of",
    "write_report",
]
