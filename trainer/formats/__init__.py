"""Trajectories in other people's formats, out and in: ATIF, SWE-agent's, chats, predictions."""

from .errors import FormatError
from .export import EXPORTS, Export, ExportFormat, export_run
from .importing import IMPORTS, ImportFormat, ImportResult, import_file
from .predictions import write_predictions
from .reading import Reader
from .sft import SftSequence, sft_sequence
from .shape import ChatShape

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "ChatShape",
    "Export",
    "ExportFormat",
    "FormatError",
    "ImportFormat",
    "ImportResult",
    "Reader",
    "SftSequence",
    "export_run",
    "import_file",
    "sft_sequence",
    "write_predictions",
]
