"""Writes tracks, slices and counters in Perfetto's own format, through its package's builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from patchgym.trainer.telemetry.span_file import SpanRecord

from .counters import Curve
from .lanes import Lane

_SEQUENCE = 1
_NANO = 1_000_000_000


class TraceWriter:
    """Writes packets to a file that is open for bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._builder: Any = StreamingTraceProtoBuilder(file)
        self._event: Any = TrackEvent
        self._explicit: int = TrackDescriptor.EXPLICIT
        self._uuid = 0
        self.slices = self.points = 0

    def group(self, name: str, rank: int) -> int:
        """A track that others lie below; its identity."""
        packet = self._track(name, None)
        packet.track_descriptor.sibling_order_rank = rank
        packet.track_descriptor.child_ordering = self._explicit
        self._builder.write_packet(packet)
        return self._uuid

    def lane(self, name: str, group: int, lane: Lane) -> None:
        """A track with a lane's spans."""
        packet = self._track(name, group)
        packet.track_descriptor.sibling_order_rank = lane.number
        self._builder.write_packet(packet)
        uuid = self._uuid
        open_spans: list[SpanRecord] = []
        for span in lane.spans:
            while open_spans and open_spans[-1].end <= span.start:
                self._end(uuid, open_spans.pop())
            self._begin(uuid, span)
            open_spans.append(span)
        while open_spans:
            self._end(uuid, open_spans.pop())

    def counter(self, name: str, group: int, curve: Curve) -> None:
        """A track with a curve."""
        packet = self._track(name, group)
        packet.track_descriptor.counter.SetInParent()
        self._builder.write_packet(packet)
        for at, value in curve:
            event = self._at(at, self._uuid, self._event.TYPE_COUNTER)
            event.track_event.double_counter_value = value
            self._builder.write_packet(event)
            self.points += 1

    def _begin(self, uuid: int, span: SpanRecord) -> None:
        packet = self._at(span.start, uuid, self._event.TYPE_SLICE_BEGIN)
        event = packet.track_event
        event.name = span.name
        event.categories.append(span.scope or "patchgym")
        about: Mapping[str, Any] = {**span.attributes, "trace": span.trace_id}
        if span.status == "error":
            about = {**about, "error": span.words}
        for key, value in about.items():
            _annotate(event.debug_annotations.add(), key, value)
        self._builder.write_packet(packet)
        self.slices += 1

    def _end(self, uuid: int, span: SpanRecord) -> None:
        self._builder.write_packet(self._at(span.end, uuid, self._event.TYPE_SLICE_END))

    def _track(self, name: str, parent: int | None) -> Any:
        self._uuid += 1
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_descriptor.uuid = self._uuid
        packet.track_descriptor.name = name
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        return packet

    def _at(self, at: float, uuid: int, kind: int) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.timestamp = round(at * _NANO)
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        return packet


def _annotate(annotation: Any, key: str, value: object) -> None:
    annotation.name = key
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        annotation.string_value = ", ".join(str(each) for each in value)
    else:
        annotation.string_value = str(value)
