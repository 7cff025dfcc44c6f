"""What a run tells of itself while it runs: spans and metrics, kept in its folder and sent on.

Every layer speaks OpenTelemetry's API under its own module's name; this package alone knows the SDK
and where things go. Reading spans (`read_spans`) needs neither.
"""

from .config import TelemetryConfig
from .gauges import Gauges
from .span_file import SpanRecord, read_spans, span_files

__all__ = ["Gauges", "SpanRecord", "TelemetryConfig", "read_spans", "span_files"]
