"""Environments for anyone's repository: read its manifests, propose, build, check."""

from .failures import BuildFailure, Classified, classify
from .ladder import environment_of
from .manifests import Project, is_manifest, read_project
from .pins import sharing_date
from .proposal import Kind, Proposal
from .propose import propose

__all__ = [
    "BuildFailure",
    "Classified",
    "Kind",
    "Project",
    "Proposal",
    "classify",
    "environment_of",
    "is_manifest",
    "propose",
    "read_project",
    "sharing_date",
]
