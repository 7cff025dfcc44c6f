"""What linters newly find in a diff: `lint` runs them in a sandbox on both states of its files."""

from .bandit import Bandit
from .formatters import DiffFormatter, Formatter, autopep8, black, formatter_of, yapf
from .image import ensure_lint_image, lint_recipe, lint_spec
from .linter import Choice, Edit, Linter, Problem, Reading, Tool, UnreadableOutput
from .report import Finding, LintReport, Skipped, Unformatted
from .ruff import Ruff, RuffFormat
from .run import default_linters, lint
from .sarif import SarifLinter, read_sarif
from .secret_scan import DetectSecrets
from .semgrep import Semgrep

__all__ = [
    "Bandit",
    "Choice",
    "DetectSecrets",
    "DiffFormatter",
    "Edit",
    "Finding",
    "Formatter",
    "LintReport",
    "Linter",
    "Problem",
    "Reading",
    "Ruff",
    "RuffFormat",
    "SarifLinter",
    "Semgrep",
    "Skipped",
    "Tool",
    "Unformatted",
    "UnreadableOutput",
    "autopep8",
    "black",
    "default_linters",
    "ensure_lint_image",
    "formatter_of",
    "lint",
    "lint_recipe",
    "lint_spec",
    "read_sarif",
    "yapf",
]
