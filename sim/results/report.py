"""report.html: one self-contained page about a run, built from nothing but its result directory."""

import math
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from sim.results import outcome, text
from sim.results.bars import SLOW, bytes_by_type, gains, least_px, work_done
from sim.results.client_table import clients, help_table
from sim.results.figures import (
    MOST_MOVE_LINES,
    clients_up,
    progress_over_bytes,
    progress_over_time,
    staleness,
    weights_over_time,
)
from sim.results.heatmaps import learned_graph
from sim.results.page import document, key, picture, section, side_by_side
from sim.results.population import ARRIVALS, Happening, Population
from sim.results.store import RunDirectory
from sim.results.table import Cell, plain_table, seconds, share, table
from sim.results.timeline import clients_shown, timeline
from sim.results.view import RunView

MOST_FAILURES = 200
_LEAST_HEAT_MAP_PX = 720  # below, what the cells and labels of a heat map say cannot be read
_LEAST_TIMELINE_PX = 560
_NOTHING = Cell(text.NOTHING, None)
_UP, _DOWN = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"


def write_report(directory: RunDirectory) -> Path:
    """Writes report.html into a result directory, reading nothing else, and returns its path.

    The same directory always gives the same page.
    """
    view = RunView(directory)
    parts = (_progress, _help, _graph, _timeline, _moves, _traffic, _clients, _details, _scenario)
    with np.errstate(over="ignore", invalid="ignore"):  # what has diverged too far to be drawn is left out
        body = _head(view) + "".join(part(view) for part in parts)
    return directory.write_report(document(str(view.get("scenario")), body))


def _head(view: RunView) -> str:
    facts = [
        f"protocol <b>{escape(outcome.protocol(view.summary))}</b>",
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
        f"<header><h1>{escape(str(view.get('scenario')))}</h1>{question}{_overrides(view)}"
        f'<p class="facts">{" · ".join(facts)}</p></header>{_warnings(view)}<div class="tiles">{tiles}</div>'
    )


def _overrides(view: RunView) -> str:
    """What was stated beside the file: what its comment says holds without."""
    overrides = view.get("overrides") or []
    if not overrides:
        return ""
    options = [str(each) if str(each).startswith("--unset ") else f"--set {each}" for each in overrides]
    stated = " ".join(f"<code>{escape(option)}</code>" for option in options)
    means = "The text above is about the file as it is; this run is" if view.question else "The file was run"
    told = "".join(f"; {escape(str(notice))}" for notice in view.get("notices") or ())
    return f'<p class="overrides">{means} with {stated}{told}</p>'


def _warnings(view: RunView) -> str:
    warnings = ""
    if (after := outcome.interrupted(view.summary)) is not None:
        warnings += f'<p class="warning">Interrupted {after} of virtual time.</p>'
    for line in outcome.headlines(view.summary):
        warnings += f'<p class="warning"><b>{escape(line[0].upper() + line[1:])}.</b></p>'
    failures = view.get("failures") or []
    if failures:
        items = "".join(f"<li>{escape(str(failure))}</li>" for failure in failures[:MOST_FAILURES])
        count = len(failures)
        more = f"<p>The first {MOST_FAILURES} of {count:,} failures.</p>" if count > MOST_FAILURES else ""
        warnings += f'<div class="warning"><p>Clients failed:</p><ul>{items}</ul>{more}</div>'
    return warnings


def _tiles(view: RunView) -> list[tuple[str, str, str]]:
    """The headline numbers that this run has: (label, value, note)."""
    tiles = []
    if view.get("accuracy", "mean") is not None:
        spread = (
            f"\N{PLUS-MINUS SIGN} {text.share(view.get('accuracy', 'std'))} over {outcome.whom(view.summary)}"
        )
        tiles.append(("Mean accuracy", text.share(view.get("accuracy", "mean")), spread))
        tiles.append(
            ("Worst 10%", text.share(view.get("accuracy", "worst_decile")), "mean of the worst clients")
        )
        if view.get("settled", "mean") is not None:
            iterations = text.number(view.get("settled", "iterations"))
            since = (
                f"{text.number(view.get('settled', 'clients'))} clients with {iterations} iterations or more"
            )
            tiles.append(("Settled clients", text.share(view.get("settled", "mean")), since))
    elif view.measure is not None:
        final = view.at_the_end
        mean = None if np.isnan(final).all() else float(np.nanmean(final))
        tiles.append((f"Mean {view.measure[0].label}", text.number(mean), "at the end"))
    if view.get("better_than_alone") is not None:
        tiles.append(("Better than alone", text.share(view.get("better_than_alone")), _help_note(view)))
    if view.get("graph", "edge_recall") is not None:
        pair = " / ".join(_ratio(view.get("graph", key), 2) for key in ("edge_precision", "edge_recall"))
        tiles.append(("Precision / recall", pair, "of the learned edges"))
    tiles.append(("Clients up", text.number(view.get("clients", "alive")), _arrivals_and_departures(view)))
    count = text.number(view.get("messages", "sent"))
    tiles.append(("Sent", text.size(view.get("messages", "bytes")), f"in {count} messages"))
    return tiles


def _arrivals_and_departures(view: RunView) -> str:
    initial = text.number(view.get("clients", "initial"))
    return ", ".join([f"{initial} at the start", *outcome.moves(view.summary)])


def _progress(view: RunView) -> str:
    if view.measure is None:
        return section("Progress", "<p>Nothing was evaluated in this run.</p>")
    measure = view.measure[0]
    lead = f"The {measure.label} of the clients that are up, as the observer sees it."
    if 0 < len(view.moves) <= MOST_MOVE_LINES:
        lead += f" Dotted lines mark arrivals ({_UP}) and departures ({_DOWN})."
    pictures = [
        picture(progress_over_time(view), "progress-over-time"),
        picture(progress_over_bytes(view), "progress-over-bytes"),
    ]
    return section(measure.label.capitalize(), f"<p>{lead}</p>{side_by_side(pictures)}")


def _help(view: RunView) -> str:
    """By how much, and for whom, help helped; needs run.compare_alone."""
    if not view.gains:
        return ""
    lead = (
        "Each client that was up at the end beside the same client alone: as many steps, from the same "
        f"start, on its own data only. Better with peers: {_help_note(view)}."
    )
    bars = gains(view)
    content = f"<p>{lead}</p>{picture(bars, 'gains', least_px=least_px(bars))}{help_table(view)}"
    return section("With peers and alone", content)


def _help_note(view: RunView) -> str:
    """How many clients are better off than alone, and by how much on average."""
    if view.measure is None or not view.gains:
        return "of the clients"
    differences = [gain.difference for gain in view.gains]
    better, mean = sum(value > 0 for value in differences), float(np.mean(differences))
    by = f"{text.points(mean)} points" if view.measure[0].is_share else f"{mean:+,.4g}"
    return f"{better:,} of {len(differences):,} clients; {by} on average"


def _graph(view: RunView) -> str:
    figure = learned_graph(view)
    if figure is None:
        return section("Collaboration graph", "<p>This protocol learned no collaboration graph.</p>")
    lead = "Row i, column j: the weight that client i gives to client j. "
    lead += "Grey: the client itself, or a client that is not up."
    if len(view.clients) > len(figure.data[0].x):
        lead += " Each cell averages several clients, named at its ends."
    if view.clusters is not None:
        lead += " Clients are ordered by their true cluster"
        lead += ", which the outlines mark." if figure.layout.shapes else "."
    content = f"<p>{lead}</p>{picture(figure, 'learned-graph', least_px=_LEAST_HEAT_MAP_PX)}"
    over_time = weights_over_time(view)
    if over_time is not None:
        content += "<h3>Mean weight inside and across the true clusters</h3>"
        content += picture(over_time, "weights-over-time")
    return section("Collaboration graph", content)


def _timeline(view: RunView) -> str:
    figure = timeline(view)
    if figure is None:
        return section("Timeline", "<p>No device was used in this run.</p>")
    lead = "What each client's device did. The deeper the colour, the more of that moment went into training."
    shown = len(clients_shown(view))
    if shown < len(view.clients):
        lead += f" The {shown} of {len(view.clients):,} clients that fare worst, the worst on top."
    shown_figure = picture(figure, "timeline", least_px=_LEAST_TIMELINE_PX)
    content = f"<p>{lead}</p>{key(figure)}{shown_figure}"
    bars = work_done(view)
    if bars is not None:
        lead = "The fewest first."
        if view.device_s_per_step is not None:
            lead += f" Slow is a device that takes more than {SLOW:g} times the median one's time for a step."
        content += (
            f"<h3>Iterations done</h3><p>{lead}</p>{picture(bars, 'work-done', least_px=least_px(bars))}"
        )
    return section("Timeline", content)


def _moves(view: RunView) -> str:
    """What each arrival and departure meant for those concerned."""
    if not view.moves:
        return ""
    content = picture(clients_up(view), "clients-up")
    if view.measure is not None and view.measure[0].is_share:
        population = Population(view.measure[1], view.moves)
        rows: list[list[str | Cell]] = []
        for move in view.moves:
            describe = _newcomer if move.event in ARRIVALS else _survivors
            consequence = describe(population, move)
            rows.append([view.clients[move.client], move.event, seconds(move.time_s), *consequence])
        lead = (
            "Catch-up: time until a newcomer has 90 % of the mean accuracy of those who were there before. "
            "Dip and recovery: how far the mean of the others fell after a departure, and when it was back."
        )
        # Summaries of earlier versions do not say what became of the others.
        if view.get("population", "newcomers") and view.get("population", "went_before") is not None:
            lead += f" Of the newcomers, {outcome.catching_up(view.get('population'))}."
        heads = ["client", "event", "time", "catch-up", "dip", "recovery"]
        content += f"<p>{lead}</p>{table(heads, rows, 'arrivals and departures')}"
    return section("Arrivals and departures", content)


def _newcomer(population: Population, move: Happening) -> list[Cell]:
    if not (move.is_newcomer and population.has_incumbents(move)):
        return [_NOTHING] * 3
    return [_reached(population.catch_up(move)), _NOTHING, _NOTHING]


def _survivors(population: Population, move: Happening) -> list[Cell]:
    dip = population.dip(move.time_s)
    return [_NOTHING] * 3 if dip is None else [_NOTHING, share(dip.depth), _reached(dip.seconds)]


def _reached(after_s: float | None) -> Cell:
    return Cell("not reached", math.inf) if after_s is None else seconds(after_s)


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
    return section(
        "Communication",
        side_by_side(
            f"<h3>{title}</h3>{picture(figure, name) if figure is not None else f'<p>{otherwise}</p>'}"
            for title, figure, name, otherwise in parts
        ),
    )


def _clients(view: RunView) -> str:
    return section("Clients", clients(view))


def _details(view: RunView) -> str:
    """All of the summary's groups of numbers; a group in which nothing is known is left out."""
    by_group: list[tuple[str, Callable[[Any], str]]] = [
        ("clients", text.number),
        ("accuracy", text.share),
        ("settled", text.share),
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
        "clients": text.number,
        "iterations": text.number,
    }
    lists = []
    for group, readable in by_group:
        numbers = view.get(group) or {}
        if all(value is None for value in numbers.values()):
            continue
        rows = [[_words(key), by_key.get(key, readable)(value)] for key, value in numbers.items()]
        lists.append(f"<div><h3>{_words(group).capitalize()}</h3>{plain_table(rows)}</div>")
    content = f'<div class="lists">{"".join(lists)}</div>'
    threshold = view.get("graph", "edge_threshold")
    if threshold is not None:
        content += f"<p>An edge is a weight of more than {threshold:g} times the largest possible one.</p>"
    return section("All numbers", content)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _scenario(view: RunView) -> str:
    if not view.scenario_text:
        return ""
    code = f"<pre>{escape(view.scenario_text)}</pre>"
    return section("Scenario", f"<details><summary>scenario.toml, as resolved</summary>{code}</details>")


def _ratio(value: float | None, digits: int = 3) -> str:
    return text.NOTHING if value is None else f"{value:.{digits}f}"
