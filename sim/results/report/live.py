"""What the report says of a run on real sockets, and of how far the simulation is from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.results import text
from sim.results.measures import measure_called
from sim.results.metrics import Series
from sim.results.report.blocks import Block, Cell, Heading, Paragraph, Picture, Section, Table, cell
from sim.results.report.figure import Figure
from sim.results.report.style import BLUE, FAINT, ORANGE, blank, line, measure_axis, time_axis
from sim.results.view import RunView

_BUSY = (
    "This machine was too busy for a verdict: more than 5 % of the jobs or messages were late. Run it again "
    "when nothing else does."
)


def on_sockets(view: RunView) -> Section | None:
    """How a live run went; None for a simulation."""
    live = view.get("live")
    if live is None:
        return None
    world = "its messages and jobs took the time they took" if live["raw"] else "in the scenario's world"
    count = len(live["processes"])
    blocks: list[Block] = [
        Paragraph(
            f"This run took place on the wall clock, in {count} processes that talked over TCP, {world}. "
            f"{live['messages_between']:,} messages passed between processes; this machine's load was "
            f"{live['load']:.1f} at the end."
        )
    ]
    if live["too_busy"]:
        blocks.append(Paragraph(_BUSY))
    rows: list[list[str | Cell]] = [
        [name, *[_ms(found[key]) for key in ("median", "p95", "p99", "max")]]
        for name, found in (("messages", live["delivered_late_s"]), ("jobs", live["jobs_late_s"]))
        if found is not None
    ]
    if rows:
        heads = ["Late by", "median", "95 %", "99 %", "most"]
        blocks.append(Table(heads, rows, "lateness"))
    if live["blocked"]:
        rows = [
            [whose, cell(at_s, text.duration), cell(took_s, text.duration)]
            for at_s, took_s, whose in live["blocked"]
        ]
        blocks += [Paragraph("Nothing else of a process happens during one event. The longest were:")]
        blocks += [Table(["Whose", "at", "took"], rows, "events")]
    if live["stalls"]:
        lost_s = sum(stall[1] for stall in live["stalls"])
        stood = f"Processes stood still {len(live['stalls'])} times, for {text.duration(lost_s)} in all"
        blocks.append(Paragraph(f"{stood}; they lost that time, and nobody else did."))
    return Section("On real sockets", blocks)


def against_simulation(view: RunView) -> Section | None:
    """How far the simulation of the same scenario is from a live run; None where nobody asked."""
    found = view.get("against")
    if found is None:
        return None
    promises: list[list[str | Cell]] = [
        [what, how, "yes" if ok else "no"] for what, how, ok in view.get("verdicts") or ()
    ]
    both = ["predicted", "measured"]
    blocks: list[Block] = [
        Paragraph(
            "The same scenario in the simulator, and again with all devices 1 % slower or faster: the "
            "difference that these make is chance."
        ),
        Table(["Promise", "Found", "Holds"], promises, "promises"),
        *[Paragraph(caveat) for caveat in [view.get("caveat")] if caveat],
        Picture("against", _curves(found)),
        Heading("What took how long"),
        Table(["Time", *both], _times(found), "times"),
        Heading("Messages"),
        Table(["Class", *both, *[f"bytes {each}" for each in both]], _bytes(found), "classes"),
        Heading("Iterations"),
        Table(["Client", *both, "difference"], _iterations(found), "clients"),
    ]
    return Section("Against the simulation", blocks)


def _ms(seconds: float) -> Cell:
    return Cell(f"{1e3 * seconds:.2f} ms", seconds)


def _curves(found: Mapping[str, Any]) -> Figure:
    figure = blank(360)
    measure, curves = measure_called(found["measure"]), found["curves"]
    end_s = max(curves["predicted"][0], default=0.0)
    unit_s = time_axis(figure, end_s)
    measure_axis(figure, measure)

    def draw(curve: Sequence[Sequence[float]], name: str, colour: str, **more: Any) -> None:
        series = Series(np.array(curve[0]) / unit_s, np.array(curve[1]))
        figure.add(line(series, name, colour, f"{name} <b>{measure.y}</b>", **more))

    for other in curves["others"]:
        draw(other, "devices 1 % slower or faster", FAINT)
    draw(curves["predicted"], "predicted", BLUE)
    draw(curves["measured"], "measured", ORANGE, dash="dash")
    for trace in figure.data[1 : len(curves["others"])]:
        trace["showlegend"] = False
    return figure


def _times(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    steps = [float(np.mean(list(each.values()))) if each else None for each in found["step_time_s"]]
    rows = [("a training step, mean of the clients", steps)]
    rows += [(f"from sending to delivery, {share[1:]} %", both) for share, both in found["latency_s"].items()]
    return [[what, *[cell(each, text.duration) for each in both]] for what, both in rows]


def _bytes(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    rows = [(kind, *zip(*both, strict=True)) for kind, both in found["bytes_by_type"].items()]
    return [
        [
            text.message_type(kind),
            *[cell(each) for each in counts],
            *[cell(each, text.size) for each in lengths],
        ]
        for kind, counts, lengths in rows
    ]


def _iterations(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    clients = found["iterations"]["clients"].items()
    rows = [(name, one, two, (two - one) / one if one else None) for name, (one, two) in clients]
    return [[name, cell(one), cell(two), cell(share, _signed)] for name, one, two, share in rows]


def _signed(share: float | None) -> str:
    return text.NOTHING if share is None else f"{share:+.1%}"
