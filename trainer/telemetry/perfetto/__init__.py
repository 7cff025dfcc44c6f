"""A window of a run as a Perfetto trace, for ui.perfetto.dev: `patchgym runs export RUN`."""

from .export import PerfettoExport, export_perfetto

__all__ = ["PerfettoExport", "export_perfetto"]
