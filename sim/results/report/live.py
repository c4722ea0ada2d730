"""Sections of the report about a live run on sockets, and its comparison with the simulation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.results import text
from sim.results.measures import measure_called
from sim.results.metrics import Series
from sim.results.report.blocks import Block, Cell, Heading, Paragraph, Picture, Section, Table, number_cell
from sim.results.report.figure import Figure
from sim.results.report.style import BLUE, FAINT, ORANGE, blank_figure, line, measure_axis, time_axis
from sim.results.view import RunView

_BUSY = (
    "This machine was too busy to judge the comparison: more than 5% of the jobs or messages were late. "
    "Run it again on an idle machine."
)


def live_run_section(view: RunView) -> Section | None:
    """Describe a live run; None for a simulation."""
    live = view.get("live")
    if live is None:
        return None
    world = "with real durations" if live["raw"] else "with the scenario's durations"
    count = len(live["processes"])
    blocks: list[Block] = [
        Paragraph(
            f"This run used wall-clock time, in {count} processes that communicated over TCP, {world}. "
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
        heads = ["delayed events", "median", "95th percentile", "99th percentile", "maximum"]
        blocks.append(Table(heads, rows, "delays"))
    if live["blocked"]:
        rows = [
            [actor, number_cell(at_s, text.duration), number_cell(took_s, text.duration)]
            for at_s, took_s, actor in live["blocked"]
        ]
        blocks += [Paragraph("A process handles one event at a time. The longest events were:")]
        blocks += [Table(["actor", "time", "duration"], rows, "events")]
    if live["stalls"]:
        lost_s, count = sum(stall[1] for stall in live["stalls"]), len(live["stalls"])
        times = "once" if count == 1 else f"{count} times"
        stalls = f"Processes were suspended {times}, for {text.duration(lost_s)} in total"
        blocks.append(Paragraph(f"{stalls}. The other processes kept running."))
    return Section("Live run on sockets", blocks)


def against_simulation(view: RunView) -> Section | None:
    """Compare a live run with the simulation of its scenario; None if the run was not compared."""
    found = view.get("against")
    if found is None:
        return None
    requirements: list[list[str | Cell]] = [
        [what, how, "yes" if ok else "no"] for what, how, ok in view.get("verdicts") or ()
    ]
    both = ["predicted", "measured"]
    blocks: list[Block] = [
        Paragraph(
            "The live run is compared with a simulation of the same scenario. Simulations with all devices "
            "1% slower or faster show the sensitivity of the result to small differences in time."
        ),
        Table(["requirement", "result", "met"], requirements, "requirements"),
        *[Paragraph(caveat) for caveat in [view.get("caveat")] if caveat],
        Picture("against", _curves(found)),
        Heading("Durations"),
        Table(["duration", *both], _times(found), "times"),
        Heading("Messages"),
        Table(["class", *both, *[f"bytes {each}" for each in both]], _bytes(found), "classes"),
        Heading("Iterations"),
        Table(["client", *both, "difference"], _iterations(found), "clients"),
    ]
    return Section("Comparison with the simulation", blocks)


def _ms(seconds: float) -> Cell:
    return Cell(f"{1e3 * seconds:.2f} ms", seconds)


def _curves(found: Mapping[str, Any]) -> Figure:
    figure = blank_figure(360)
    measure, curves = measure_called(found["measure"]), found["curves"]
    end_s = max(curves["predicted"][0], default=0.0)
    unit_s = time_axis(figure, end_s)
    measure_axis(figure, measure)

    def draw(curve: Sequence[Sequence[float]], name: str, colour: str, **more: Any) -> None:
        series = Series(np.array(curve[0]) / unit_s, np.array(curve[1]))
        figure.add(line(series, name, colour, f"{name} <b>{measure.y}</b>", **more))

    for other in curves["others"]:
        draw(other, "devices 1% slower or faster", FAINT)
    draw(curves["predicted"], "predicted", BLUE)
    draw(curves["measured"], "measured", ORANGE, dash="dash")
    for trace in figure.data[1 : len(curves["others"])]:
        trace["showlegend"] = False
    return figure


def _times(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    steps = [float(np.mean(list(each.values()))) if each else None for each in found["step_time_s"]]
    rows = [("training step, mean over clients", steps)]
    rows += [(f"message delivery, {share[1:]}%", both) for share, both in found["latency_s"].items()]
    return [[what, *[number_cell(each, text.duration) for each in both]] for what, both in rows]


def _bytes(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    rows = [(kind, *zip(*both, strict=True)) for kind, both in found["bytes_by_type"].items()]
    return [
        [
            text.message_type(kind),
            *[number_cell(each) for each in counts],
            *[number_cell(each, text.size) for each in lengths],
        ]
        for kind, counts, lengths in rows
    ]


def _iterations(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    clients = found["iterations"]["clients"].items()
    rows = [(name, one, two, (two - one) / one if one else None) for name, (one, two) in clients]
    return [
        [name, number_cell(one), number_cell(two), number_cell(share, _signed)]
        for name, one, two, share in rows
    ]


def _signed(share: float | None) -> str:
    return text.NOTHING if share is None else f"{share:+.1%}"
