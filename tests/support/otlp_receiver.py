"""A collector that takes OTLP over HTTP, decodes it, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received:
    """What came."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        """By name, the last of each."""
        self.resource: dict[str, str] = {}
        self.problems: list[str] = []

    def take(self, path: str, body: bytes) -> None:
        """Decode one request; ValueError for a path that OTLP hasn't got."""
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for resource in traces.resource_spans:
                self._note(resource)
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body)
            for resource in metrics.resource_metrics:
                self._note(resource)
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
        else:
            raise ValueError(path)

    def _note(self, resource: Any) -> None:
        for each in resource.resource.attributes:
            self.resource[each.key] = each.value.string_value


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """A receiver that listens on this machine for the length of the block."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            try:
                received.take(self.path, body)
            except Exception as error:
                received.problems.append(f"{self.path}: {type(error).__name__}: {error}")
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
