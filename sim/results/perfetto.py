"""Trace file of a run for Perfetto (https://ui.perfetto.dev), made from its results folder.

The format is Perfetto's binary one: packets with track events, with times in nanoseconds of virtual time.
Each actor is a process with two tracks: device and messages. A flow connects the sending of each message with
its delivery. A lost message has a mark with the reason at its sender, at the time of the loss. Counters show
the messages in transit and the metric of each client.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sim.errors import require_packages
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

TRACE_FILE = "trace.pftrace"
_DEVICE, _MESSAGES, _METRIC, _TRACKS = 1, 2, 3, 4  # of an actor; the last one is their number
_IN_TRANSIT = 1  # track of the whole run
_FIRST_ACTOR = 2  # process identifiers: Perfetto has a meaning of its own for 0
_NAMES = {"busy": "training", "down": "down"}
_ROWS = 50_000  # rows read at once
_SEQUENCE = 1  # all packets are in one sequence


def write_perfetto(directory: RunDirectory) -> Path:
    """Write trace.pftrace into a results folder, and return its path. Raises OSError and UserError."""
    require_packages("trace", "a timeline", "perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    with directory.whole(TRACE_FILE) as file, file.open("wb") as out:
        for packet in packets(directory):
            out.write(Trace(packet=[packet]).SerializeToString())  # a trace is a sequence of such parts
    return file


def packets(directory: RunDirectory) -> Iterator[TracePacket]:
    """Yield the packets: tracks, devices, metrics, and the entries of the trace in order of time."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

    view = RunView(directory)
    process = {name: number for number, name in enumerate(_actors(directory, view), start=_FIRST_ACTOR)}
    first = proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    first.sequence_flags = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    yield first
    yield from _tracks(process, view)
    yield from _devices(directory, view, process)
    yield from _metrics(view, process)
    yield from _in_transit(directory)
    yield from _entries(directory, process)


def _actors(directory: RunDirectory, view: RunView) -> list[str]:
    """Return the clients in order, then servers."""
    columns = [("events", "actor"), ("events", "peer"), ("intervals", "actor")]
    tables = [directory.scan(table).select(pl.col(column).alias("name")) for table, column in columns]
    others = pl.concat(tables).unique().drop_nulls().collect()["name"].to_list()
    return [*view.clients, *sorted(set(others) - set(view.clients))]


def track_id(process: int, kind: int) -> int:
    """Return the identifier of a track of an actor; kind 0 is the actor itself."""
    return process * _TRACKS + kind


def _tracks(process: dict[str, int], view: RunView) -> Iterator[TracePacket]:
    """Yield the descriptions of all tracks."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

    def described(uuid: int, name: str, parent: int | None = None) -> Any:
        packet = proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
        packet.track_descriptor.uuid, packet.track_descriptor.name = uuid, name
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        return packet

    in_transit = described(_IN_TRANSIT, "messages in transit")
    in_transit.track_descriptor.counter.SetInParent()
    yield in_transit
    for order, (name, number) in enumerate(process.items()):
        actor = described(track_id(number, 0), name)
        actor.track_descriptor.process.pid = number
        actor.track_descriptor.process.process_name = name
        actor.track_descriptor.sibling_order_rank = order
        yield actor
        for kind, what in ((_DEVICE, "device"), (_MESSAGES, "messages")):
            yield described(track_id(number, kind), what, track_id(number, 0))
        if view.measure is not None:
            metric = described(track_id(number, _METRIC), view.measure[0].name, track_id(number, 0))
            metric.track_descriptor.counter.SetInParent()
            yield metric


def _event(time_s: float, track: int, kind: str, name: str = "", category: str = "") -> Any:
    """Return a packet with a track event; kind: SLICE_BEGIN, SLICE_END, INSTANT or COUNTER."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

    packet = proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE, timestamp=round(time_s * 1e9))
    packet.track_event.track_uuid = track
    packet.track_event.type = getattr(proto.TrackEvent, f"TYPE_{kind}")
    if name:
        packet.track_event.name = name
    if category:
        packet.track_event.categories.append(category)
    return packet


def _devices(directory: RunDirectory, view: RunView, process: dict[str, int]) -> Iterator[TracePacket]:
    """Yield the states of each device; a device that is up and not busy is waiting."""
    frame = directory.scan("intervals").sort("actor", "start").collect()
    for (name,), rows in frame.partition_by("actor", as_dict=True, maintain_order=True).items():
        track, last_s = track_id(process[name], _DEVICE), 0.0
        intervals = [*rows.select("start", "end", "state").iter_rows(), (view.end_s, view.end_s, "")]
        for start_s, end_s, state in intervals:
            if start_s > last_s:
                yield from _slice(last_s, start_s, track, "waiting")
            if end_s > start_s:
                yield from _slice(start_s, end_s, track, _NAMES[state])
            last_s = max(last_s, end_s)


def _slice(start_s: float, end_s: float, track: int, name: str) -> Iterator[TracePacket]:
    yield _event(start_s, track, "SLICE_BEGIN", name, "device")
    yield _event(end_s, track, "SLICE_END")


def _metrics(view: RunView, process: dict[str, int]) -> Iterator[TracePacket]:
    """Yield the values of the run's first metric, as counters."""
    if view.measure is None:
        return
    panel = view.measure[1]
    for client, name in enumerate(view.clients):
        for time_s, value in zip(*panel.of(client), strict=True):
            packet = _event(time_s, track_id(process[name], _METRIC), "COUNTER")
            packet.track_event.double_counter_value = value
            yield packet


def _in_transit(directory: RunDirectory) -> Iterator[TracePacket]:
    """Yield the number of messages that were sent and have not arrived, at each change."""
    change = pl.when(pl.col("event") == "sent").then(1).otherwise(-1)
    messages = directory.scan("events").filter(pl.col("peer").is_not_null() & pl.col("message").is_not_null())
    counts = messages.select("time", count=change.cum_sum()).group_by("time", maintain_order=True).last()
    for time_s, count in counts.collect().iter_rows():
        packet = _event(time_s, _IN_TRANSIT, "COUNTER")
        packet.track_event.counter_value = count
        yield packet


def _entries(directory: RunDirectory, process: dict[str, int]) -> Iterator[TracePacket]:
    events = directory.scan("events").filter(pl.col("event") != "checksum")
    for part in events.collect().iter_slices(_ROWS):
        for row in part.iter_rows(named=True):
            yield _message(row, process) if row["peer"] is not None else _lifecycle_packet(row, process)


def _message(row: dict[str, Any], process: dict[str, int]) -> TracePacket:
    """Return a mark at the sender or receiver, with an end of the flow between them."""
    arrives, number = row["event"] == "delivered", row["message"]
    is_end = row["event"] in ("sent", "delivered")
    track = track_id(process[row["peer"] if arrives else row["actor"]], _MESSAGES)
    name = row["type"] if is_end else f"{row['event']}: {row['type']}"
    packet = _event(row["time"], track, "INSTANT", name, row["event"])
    for key, value in (("from", row["actor"]), ("to", row["peer"]), ("why", row["detail"])):
        if value:
            packet.track_event.debug_annotations.add(name=key, string_value=value)
    packet.track_event.debug_annotations.add(name="bytes", int_value=row["bytes"])
    if number is not None and is_end:
        ends = packet.track_event.terminating_flow_ids if arrives else packet.track_event.flow_ids
        ends.append(number)
    return packet


def _lifecycle_packet(row: dict[str, Any], process: dict[str, int]) -> TracePacket:
    packet = _event(row["time"], track_id(process[row["actor"]], _DEVICE), "INSTANT", row["event"], "life")
    if row["detail"]:
        packet.track_event.debug_annotations.add(name="detail", string_value=row["detail"])
    return packet
