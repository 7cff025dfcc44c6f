"""patchgym: train code-fixing agents in pooled Docker sandboxes."""

__version__ = "0.1.0"
