"""Trace file of a run for Perfetto (ui.perfetto.dev) or chrome://tracing, made from its results folder.

The format is Google's "Trace Event Format": times in microseconds of virtual time. Each actor is a
process with two tracks: device and messages. An arrow (a flow) connects the sending of each message with its
delivery. A lost message has a mark with the reason at its sender, at the time of the loss.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView

TRACE_FILE = "trace.json"
_DEVICE, _MESSAGES = 0, 1
_ROWS = 50_000  # rows read at once
_NAMES = {"busy": "training", "down": "down"}
_INSTANT_US = 0.001  # duration of marks with arrows: Perfetto's resolution


def write_perfetto(directory: RunDirectory) -> Path:
    """Write trace.json into a results folder, and return its path. Raises OSError."""
    with directory.whole(TRACE_FILE) as file, file.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(trace_events(directory)):
            out.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False))
        out.write("\n]}\n")
    return file


def trace_events(directory: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield the events: names, devices, and the entries of the trace in order of time."""
    view = RunView(directory)
    names = _actors(directory, view)
    process = {name: number for number, name in enumerate(names, start=1)}
    for name, number in process.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
        for track, what in ((_DEVICE, "device"), (_MESSAGES, "messages")):
            yield {"ph": "M", "name": "thread_name", "pid": number, "tid": track, "args": {"name": what}}
    yield from _devices(directory, view, process)
    yield from _entries(directory, process)


def _actors(directory: RunDirectory, view: RunView) -> list[str]:
    """Return the clients in order, then servers."""
    columns = [("events", "actor"), ("events", "peer"), ("intervals", "actor")]
    tables = [directory.scan(table).select(pl.col(column).alias("name")) for table, column in columns]
    others = pl.concat(tables).unique().drop_nulls().collect()["name"].to_list()
    return [*view.clients, *sorted(set(others) - set(view.clients))]


def _devices(directory: RunDirectory, view: RunView, process: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the states of each device; a device that is up and not busy is waiting."""
    frame = directory.scan("intervals").sort("actor", "start").collect()
    for (name,), rows in frame.partition_by("actor", as_dict=True, maintain_order=True).items():
        track, last_s = {"pid": process[name], "tid": _DEVICE}, 0.0
        intervals = [*rows.select("start", "end", "state").iter_rows(), (view.end_s, view.end_s, "")]
        for start_s, end_s, state in intervals:
            if start_s > last_s:
                yield {"ph": "X", "name": "waiting", "cat": "device", **_span(last_s, start_s), **track}
            if end_s > start_s:
                yield {"ph": "X", "name": _NAMES[state], "cat": "device", **_span(start_s, end_s), **track}
            last_s = max(last_s, end_s)


def _entries(directory: RunDirectory, process: dict[str, int]) -> Iterator[dict[str, Any]]:
    events = directory.scan("events").filter(pl.col("event") != "checksum")
    for part in events.collect().iter_slices(_ROWS):
        for row in part.iter_rows(named=True):
            yield from _message(row, process) if row["peer"] is not None else _move(row, process)


def _message(row: dict[str, Any], process: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield a mark at the sender or receiver, and an end of the arrow between them."""
    arrives, number = row["event"] == "delivered", row["message"]
    track = {
        "pid": process[row["peer"] if arrives else row["actor"]],
        "tid": _MESSAGES,
        "ts": _us(row["time"]),
    }
    details = {"from": row["actor"], "to": row["peer"], "bytes": row["bytes"], "message": number}
    if row["detail"]:
        details["why"] = row["detail"]
    name = row["type"] if row["event"] in ("sent", "delivered") else f"{row['event']}: {row['type']}"
    yield {"ph": "X", "name": name, "cat": row["event"], "dur": _INSTANT_US, **track, "args": details}
    if number is not None and row["event"] in ("sent", "delivered"):
        flow = {"ph": "f", "bp": "e"} if arrives else {"ph": "s"}
        yield {**flow, "name": "message", "cat": "message", "id": number, **track}


def _move(row: dict[str, Any], process: dict[str, int]) -> Iterator[dict[str, Any]]:
    mark = {"ph": "i", "s": "p", "name": row["event"], "cat": "life", "ts": _us(row["time"])}
    yield {**mark, "pid": process[row["actor"]], "tid": _DEVICE, "args": {"detail": row["detail"]}}


def _span(start_s: float, end_s: float) -> dict[str, float]:
    return {"ts": _us(start_s), "dur": round(_us(end_s) - _us(start_s), 3)}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
