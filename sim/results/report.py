"""report.html: one self-contained page about a run, built from nothing but its result directory."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from sim.results import text
from sim.results.figures import (
    bytes_by_type,
    progress_over_bytes,
    progress_over_time,
    staleness,
    weights_over_time,
)
from sim.results.heatmaps import MOST_TIMELINE_CLIENTS, learned_graph, timeline
from sim.results.page import document
from sim.results.population import ARRIVALS, Happening, Panel, Population
from sim.results.store import RunDirectory
from sim.results.view import RunView

MOST_TABLE_ROWS = 200
MOST_OPEN_ROWS = 30

_PLOTLY_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "resetScale2d"]],  # zooming is dragging
}


def write_report(directory: RunDirectory) -> Path:
    """Writes report.html into a result directory, reading nothing else, and returns its path.

    The same directory always gives the same page.
    """
    view = RunView(directory)
    sections = (_progress, _graph, _timeline, _moves, _traffic, _clients, _details, _scenario)
    body = _head(view) + "".join(section(view) for section in sections)
    return directory.write_report(document(str(view.get("scenario")), body, get_plotlyjs()))


def _head(view: RunView) -> str:
    facts = [
        f"protocol <b>{escape(str(view.get('protocol')))}</b>",
        f"seed <b>{escape(str(view.get('seed')))}</b>",
        f"<b>{text.duration(view.end_s)}</b> of virtual time",
        f"computed in <b>{text.duration(view.get('wall_seconds'))}</b>",
        f"trace <code>{escape(str(view.get('trace_hash')))}</code>",
    ]
    question = f'<p class="question">{escape(view.question)}</p>' if view.question else ""
    tiles = "".join(
        f'<div class="tile"><div class="label">{label}</div><div class="value">{value}</div>'
        f'<div class="note">{note}</div></div>'
        for label, value, note in _tiles(view)
    )
    return (
        f"<header><h1>{escape(str(view.get('scenario')))}</h1>{question}"
        f'<p class="facts">{" · ".join(facts)}</p></header>{_warnings(view)}<div class="tiles">{tiles}</div>'
    )


def _warnings(view: RunView) -> str:
    warnings = ""
    if view.get("interrupted"):
        warnings += f'<p class="warning">Interrupted after {text.duration(view.end_s)} of virtual time.</p>'
    failures = view.get("failures") or []
    if failures:
        items = "".join(f"<li>{escape(str(failure))}</li>" for failure in failures[:MOST_TABLE_ROWS])
        more = _more(len(failures), "failures")
        warnings += f'<div class="warning"><p>Clients failed:</p><ul>{items}</ul>{more}</div>'
    return warnings


def _tiles(view: RunView) -> list[tuple[str, str, str]]:
    """The headline numbers that this run has: (label, value, note)."""
    tiles = []
    if view.get("accuracy", "mean") is not None:
        spread = f"\N{PLUS-MINUS SIGN} {text.share(view.get('accuracy', 'std'))} over clients"
        tiles.append(("Mean accuracy", text.share(view.get("accuracy", "mean")), spread))
        tiles.append(
            ("Worst 10%", text.share(view.get("accuracy", "worst_decile")), "mean of the worst clients")
        )
    elif view.measure is not None:
        measure, panel = view.measure
        final = panel.values[-1]
        tiles.append((f"Mean {measure.label}", text.number(float(np.nanmean(final))), "at the end"))
    if view.get("better_than_alone") is not None:
        tiles.append(("Better than alone", text.share(view.get("better_than_alone")), "of the clients"))
    if view.get("graph", "edge_recall") is not None:
        pair = " / ".join(_ratio(view.get("graph", key), 2) for key in ("edge_precision", "edge_recall"))
        tiles.append(("Precision / recall", pair, "of the learned edges"))
    tiles.append(("Clients up", text.number(view.get("clients", "alive")), _arrivals_and_departures(view)))
    count = text.number(view.get("messages", "sent"))
    tiles.append(("Sent", text.size(view.get("messages", "bytes")), f"in {count} messages"))
    return tiles


def _arrivals_and_departures(view: RunView) -> str:
    initial = text.number(view.get("clients", "initial"))
    changes = [
        f"{text.number(view.get('clients', event))} {event}"
        for event in ("joined", "left", "crashed")
        if view.get("clients", event)
    ]
    return ", ".join([f"{initial} at the start", *changes])


def _progress(view: RunView) -> str:
    if view.measure is None:
        return _section("Progress", "<p>Nothing was evaluated in this run.</p>")
    measure = view.measure[0]
    lead = f"The {measure.label} of the clients that are up, as the observer sees it."
    if view.moves:
        lead += " Dotted lines mark arrivals (green) and departures (red)."
    pictures = [
        _picture(progress_over_time(view), "progress-over-time"),
        _picture(progress_over_bytes(view), "progress-over-bytes"),
    ]
    return _section(measure.label.capitalize(), f"<p>{lead}</p>{_side_by_side(pictures)}")


def _graph(view: RunView) -> str:
    figure = learned_graph(view)
    if figure is None:
        return _section("Collaboration graph", "<p>This protocol learned no collaboration graph.</p>")
    lead = "Row i, column j: the weight that client i gives to client j. "
    lead += "Grey: the client itself, or a client that is not up."
    if len(view.clients) > len(figure.data[0].x):
        lead += " Each cell averages several clients, named at its ends."
    if view.clusters is not None:
        lead += " Clients are ordered by their true cluster"
        lead += ", which the outlines mark." if figure.layout.shapes else "."
    content = f"<p>{lead}</p>{_picture(figure, 'learned-graph')}"
    over_time = weights_over_time(view)
    if over_time is not None:
        content += "<h3>Mean weight inside and across the true clusters</h3>"
        content += _picture(over_time, "weights-over-time")
    return _section("Collaboration graph", content)


def _timeline(view: RunView) -> str:
    figure = timeline(view)
    if figure is None:
        return _section("Timeline", "<p>No device was used in this run.</p>")
    lead = "What each client's device did. The deeper the blue, the more of that moment went into training."
    if len(view.clients) > MOST_TIMELINE_CLIENTS:
        lead += f" The first {MOST_TIMELINE_CLIENTS} of {len(view.clients):,} clients are shown."
    return _section("Timeline", f"<p>{lead}</p>{_picture(figure, 'timeline')}")


def _moves(view: RunView) -> str:
    """What each arrival and departure meant for those concerned; needs accuracies."""
    if not view.moves or view.measure is None or not view.measure[0].is_share:
        return ""
    population = Population(view.measure[1], view.moves)
    rows = []
    for move in view.moves[:MOST_TABLE_ROWS]:
        describe = _newcomer if move.event in ARRIVALS else _survivors
        consequence = describe(population, move)
        rows.append([view.clients[move.client], move.event, text.duration(move.time_s), *consequence])
    heads = ["client", "event", "time", "catch-up", "dip", "recovery"]
    lead = (
        "Catch-up: time until a newcomer has 90 % of the mean accuracy of those who were there before. "
        "Dip and recovery: how far the mean of the others fell after a departure, and when it was back."
    )
    more = _more(len(view.moves), "events")
    return _section("Arrivals and departures", f"<p>{lead}</p>{_table(heads, rows, words=2)}{more}")


def _newcomer(population: Population, move: Happening) -> list[str]:
    if not (move.is_newcomer and population.has_incumbents(move)):
        return [text.NOTHING] * 3
    seconds = population.catch_up(move)
    return ["not reached" if seconds is None else text.duration(seconds), text.NOTHING, text.NOTHING]


def _survivors(population: Population, move: Happening) -> list[str]:
    dip = population.dip(move.time_s)
    if dip is None:
        return [text.NOTHING] * 3
    back = "not reached" if dip.seconds is None else text.duration(dip.seconds)
    return [text.NOTHING, text.share(dip.depth), back]


def _traffic(view: RunView) -> str:
    parts: list[tuple[str, go.Figure | None, str, str]] = [
        ("Bytes by message type", bytes_by_type(view), "bytes-by-type", "No message was sent."),
        (
            "Staleness of the models used",
            staleness(view),
            "staleness",
            "No peer's model was used, so none was stale.",
        ),
    ]
    return _section(
        "Communication",
        _side_by_side(
            f"<h3>{title}</h3>{_picture(figure, name) if figure is not None else f'<p>{otherwise}</p>'}"
            for title, figure, name, otherwise in parts
        ),
    )


def _clients(view: RunView) -> str:
    """One row per client, with the columns that this run has."""
    shown = range(min(len(view.clients), MOST_TABLE_ROWS))
    columns: list[tuple[str, Callable[[int], str]]] = [("client", lambda c: view.clients[c])]
    words = 1
    if view.happenings:
        last = {happening.client: happening for happening in view.happenings if happening.event != "stop"}
        columns.append(("last event", lambda c: _last_event(last.get(c))))
        words = 2
    if (clusters := view.clusters) is not None:
        columns.append(("cluster", lambda c: str(clusters[c])))
    if view.measure is not None:
        measure, panel = view.measure
        readable = text.share if measure.is_share else text.number
        columns.append((measure.label, lambda c: readable(_final(panel, c))))
    if (iterations := view.panel("iterations")) is not None:
        columns.append(("iterations", lambda c: _whole(_final(iterations, c))))
    if (busy := view.busy_s) is not None:
        up = [sum(end - start for start, end in spans) for spans in view.presence]
        columns.append(("up", lambda c: text.duration(up[c])))
        columns.append(("training", lambda c: text.share(float(busy[c] / up[c]) if up[c] else None)))
    rows = [[value(client) for _, value in columns] for client in shown]
    table = _table([name for name, _ in columns], rows, words=words) + _more(len(view.clients), "clients")
    state = " open" if len(view.clients) <= MOST_OPEN_ROWS else ""
    return _section("Clients", f"<details{state}><summary>Table of the clients</summary>{table}</details>")


def _last_event(happening: Happening | None) -> str:
    return text.NOTHING if happening is None else f"{happening.event} at {text.duration(happening.time_s)}"


def _final(panel: Panel, client: int) -> float | None:
    values = panel.of(client).values
    return float(values[-1]) if values.size else None


def _whole(value: float | None) -> str:
    return text.number(None if value is None else round(value))


def _details(view: RunView) -> str:
    """All of the summary's groups of numbers; a group in which nothing is known is left out."""
    by_group: list[tuple[str, Callable[[Any], str]]] = [
        ("clients", text.number),
        ("accuracy", text.share),
        ("distance", text.number),
        ("target", text.number),
        ("graph", _ratio),
        ("messages", text.number),
        ("loss_reasons", text.number),
        ("engine", text.number),
        ("device_time", text.duration),
    ]
    by_key: dict[str, Callable[[Any], str]] = {
        "seconds": text.duration,
        "bytes": text.size,
        "memory": text.size,
        "memory_per_client": text.size,
        "device": str,
        "ways": ", ".join,
        "accuracy": text.share,
    }
    lists = []
    for group, readable in by_group:
        numbers = view.get(group) or {}
        if all(value is None for value in numbers.values()):
            continue
        rows = [[_words(key), by_key.get(key, readable)(value)] for key, value in numbers.items()]
        lists.append(f"<div><h3>{_words(group).capitalize()}</h3>{_table(None, rows, words=1)}</div>")
    content = f'<div class="lists">{"".join(lists)}</div>'
    threshold = view.get("graph", "edge_threshold")
    if threshold is not None:
        content += f"<p>An edge is a weight of more than {threshold:g} times the largest possible one.</p>"
    return _section("All numbers", content)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _scenario(view: RunView) -> str:
    if not view.scenario_text:
        return ""
    code = f"<pre>{escape(view.scenario_text)}</pre>"
    return _section("Scenario", f"<details><summary>scenario.toml, as resolved</summary>{code}</details>")


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _picture(figure: go.Figure | None, name: str) -> str:
    # A fixed name instead of plotly's random one: the same run gives the same page.
    if figure is None:
        return ""
    return figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_PLOTLY_CONFIG)


def _side_by_side(parts: Iterable[str]) -> str:
    return '<div class="pair">' + "".join(f"<div>{part}</div>" for part in parts if part) + "</div>"


def _table(heads: Sequence[str] | None, rows: Sequence[Sequence[str]], *, words: int) -> str:
    """A table whose first `words` columns hold words; the others hold numbers and are aligned right."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{'' if position < words else ' class=number'}>{escape(cell)}</{tag}>"
            for position, cell in enumerate(cells)
        )

    head = f"<thead><tr>{line(heads, 'th')}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def _more(count: int, what: str) -> str:
    return f"<p>The first {MOST_TABLE_ROWS} of {count:,} {what}.</p>" if count > MOST_TABLE_ROWS else ""


def _ratio(value: float | None, digits: int = 3) -> str:
    return text.NOTHING if value is None else f"{value:.{digits}f}"
