"""report.html: a self-contained page about one run, built only from the results folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sim.results import outcome, text
from sim.results.measures import MEASURES, Measure, measure_called
from sim.results.population import ARRIVALS, LifecycleEvent, Population
from sim.results.report import curves, one_client
from sim.results.report.bars import SLOW, bytes_by_type, gains, least_px, work_done
from sim.results.report.blocks import (
    Block,
    Cell,
    Choice,
    Code,
    Heading,
    Legend,
    Numbers,
    Paragraph,
    Picture,
    Section,
    SideBySide,
    Table,
    drop_cell,
    number_cell,
    time_reached_cell,
)
from sim.results.report.coalitions import benefit_graph, changes_table, losses_table
from sim.results.report.distributions import latencies, staleness_spread, time_to_accuracy, times_table
from sim.results.report.energy import energy
from sim.results.report.figure import Figure
from sim.results.report.graph import MOST_LINES, drawn_graph
from sim.results.report.heatmaps import learned_graph
from sim.results.report.html import document, format_ratio, gain_note
from sim.results.report.live import against_simulation, live_run_section
from sim.results.report.network_map import MOST_LINES as MOST_MAP_LINES
from sim.results.report.network_map import network_map
from sim.results.report.tables import (
    MOST_HURT,
    clients_table,
    departure_drops_table,
    gain_table,
    worst_client,
)
from sim.results.report.timeline import clients_shown, timeline
from sim.results.store.output_dir import EXPLORE
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView

_LEAST_HEAT_MAP_PX = 720  # below this width, cells and labels of a heat map are unreadable
_LEAST_TIMELINE_PX = 560
_REACHED = (
    "The times at which the mean, half of the clients and 90% of the clients first reached "
    "each level, the bytes that all clients had sent when the mean reached the level, and the number of "
    "clients that never reached it."
)
_NOTHING = Cell(text.NOTHING, None)


def write_report(directory: RunDirectory) -> Path:
    """Write report.html into a results folder, reading only that folder, and return its path.

    The same folder always gives the same page.
    """
    view = RunView(directory)
    with np.errstate(over="ignore", invalid="ignore"):  # diverged values are left out
        sections = [section for part in _PARTS if (section := part(view)) is not None]
        return directory.write_report(document(view, sections, explored=(directory.path / EXPLORE).is_file()))


def _progress(view: RunView) -> Section:
    if view.measure is None:
        return Section("Progress", [Paragraph("This run has no evaluations.")])
    measure = view.measure[0]
    lead = f"The {measure.label} of the clients that are up. Evaluations take no virtual time."
    if view.evaluate_share < 1:
        lead += (
            f" Each evaluation measures a random {text.share(view.evaluate_share)} of them; the last "
            "evaluation measures all."
        )
    if 0 < len(view.moves) <= curves.MOST_MOVE_LINES:
        lead += f" Thin dashed lines mark arrivals ({curves.UP}) and departures ({curves.DOWN})."
    if measure.name == "accuracy" and any(move.is_newcomer for move in view.moves):
        lead += " The mean falls when a client arrives, because the mean then includes its initial model."
    if not np.isnan(view.spent_s).all():
        lead += (
            " Dashed lines mark the times at which the first and the last client exhausted their budgets. A "
            "client with an exhausted budget only merges models and answers peers. Its steps per second "
            "cover only the time before."
        )
    if models := list(view.get("models") or ()):
        lead += f" Clients have several models ({', '.join(models)}); the comparison uses {models[0]}."
    drawn = _side_by_side(
        ("", "progress-over-time", curves.progress_over_time(view)),
        ("", "progress-over-bytes", curves.progress_over_bytes(view)),
        ("", "models-over-time", curves.models_over_time(view)),
    )
    blocks: list[Block] = [Paragraph(lead), drawn]
    if view.others:
        found = [
            ("", f"measure-{each.name}", curves.measure_curve(view, each, of)) for each, of in view.others
        ]
        blocks += [Heading("Other measures"), _side_by_side(*found)]
    if levels := _picture("time-to-accuracy", time_to_accuracy(view)):
        blocks += [
            Heading(f"Time to {measure.name}"),
            SideBySide([levels, [Paragraph(_REACHED), times_table(view)]]),
        ]
    return Section(measure.label.capitalize(), blocks)


def _picture(name: str, figure: Figure | None, least_px: int = 0) -> list[Block]:
    return [] if figure is None else [Picture(name, figure, least_px)]


def _side_by_side(*pictures: tuple[str, str, Figure | None]) -> SideBySide:
    """Return the given pictures side by side, each under its title; None and empty titles are left out."""
    columns = [
        [Heading(title)] * bool(title) + _picture(name, figure)
        for title, name, figure in pictures
        if figure is not None
    ]
    return SideBySide(columns)


def _fork_comparison(view: RunView) -> Section | None:
    """Compare a fork with its parent; None for a run that is no fork."""
    if view.fork_s is None:
        return None
    lead = f"This run is a fork of {view.get('fork', 'of')}. "
    lead += f"The two runs are identical until {text.duration(view.fork_s)}."
    blocks: list[Block] = [
        Paragraph(lead),
        *_picture("fork-and-parent-curves", curves.fork_and_parent_curves(view)),
    ]
    if (table := curves.fork_differences_table(view)) is not None:
        lead = "Each client is compared at the last time at which both runs evaluated it."
        blocks += [Heading("Difference by client"), Paragraph(lead), table]
    return Section("Fork and parent", blocks)


def _gain_section(view: RunView) -> Section | None:
    """Compare each client with its own training alone; None without run.compare_alone."""
    if not view.gains:
        return None
    lead = (
        "Each client that was up at the end is compared with the same client training alone: for the "
        "same number of steps from the same initial model, on its own data only. Better with peers: "
        f"{gain_note(view)}."
    )
    bars = gains(view)
    blocks = [Paragraph(lead), *_picture("gains", bars, least_px(bars)), gain_table(view)]
    return Section("Training with peers and alone", blocks)


def _graph(view: RunView) -> Section:
    title, figure = "Collaboration graph", learned_graph(view)
    if figure is None:
        return Section(title, [Paragraph("This method learned no collaboration graph.")])
    lead = "Row i, column j shows the weight that client i gives client j. "
    lead += "Gray cells mark the client itself or a client that is not up."
    if len(view.clients) > len(figure.data[0]["x"]):
        lead += (
            " Each row and column stands for several clients, and its label names the first and the last. "
            "Each cell shows the mean weight."
        )
    if view.clusters is not None:
        lead += " Clients are sorted by true cluster"
        lead += "; outlines mark the clusters." if "shapes" in figure.layout else "."
    blocks: list[Block] = _graph_drawing(view)
    blocks += [
        Heading("Weights by pair"),
        Paragraph(lead),
        Picture("learned-graph", figure, _LEAST_HEAT_MAP_PX),
    ]
    if over_time := _picture("weights-over-time", curves.weights_over_time(view)):
        blocks += [Heading("Mean weight within and across the true clusters"), *over_time]
    return Section(title, blocks)


def _graph_drawing(view: RunView) -> list[Block]:
    if (figure := drawn_graph(view)) is None:
        return []
    lead = (
        f"A line joins two clients if one gives the other a weight {_edge(view)}. Wider and stronger lines "
        f"show a larger mean of the two weights. At most {MOST_LINES:,} lines are drawn."
    )
    if view.clusters is not None:
        lead += " Clients are grouped and colored by true cluster."
    lead += " Hollow circles are clients that are not up at that time."
    return [Paragraph(lead), Picture("graph", figure)]


def _coalitions(view: RunView) -> Section | None:
    """Show the benefit graph and the coalitions; None for methods that form no coalitions."""
    if not view.coalition_rows:
        return None
    lead = (
        "In the last benefit graph, an arrow points from a client to one that benefits from it. Clients of "
        "one color form one coalition. Losses are measured on the client's own validation samples, for the "
        "client's best model when it trains alone, with all clients, or with its coalition."
    )
    tables = [losses_table(view), Heading("Formation of coalitions"), changes_table(view)]
    drawn = _picture("benefit-graph", benefit_graph(view))
    return Section("Coalitions", [Paragraph(lead), *drawn, *tables])


def _one_client(view: RunView) -> Section | None:
    """Show the results, waits and weights of a client that the reader selects; None with one client."""
    curve, waits = one_client.client_measure_curves(view), one_client.waits_by_peer_figure(view)
    if curve is None:
        return None
    shown = [view.clients[client] for client in sorted(clients_shown(view))]
    lead = (
        "Click any client on this page to see it here. The client with the worst result is shown first. "
        "To see the state of a client at a given time, run coterie explain with its number and the time; "
        "coterie explore writes a page in which you step through the run. "
    )
    if waits is None and not view.has_messages and view.get("messages", "delivered"):
        lead += "Waiting times by peer are unknown: this run kept no messages (run.keep_messages)."
    elif waits is None:
        lead += "No device waited for a message or a timer."
    else:
        lead += (
            "A wait is attributed to the sender of the message that arrived when the device started to "
            "compute again. A wait that no message ended counts as a time limit or pause. Waits that a crash "
            "or the end of the run cut short are excluded."
        )
    drawn = _side_by_side(
        ("Progress", "course", curve),
        ("Waiting time by peer", "waited-for", waits),
        ("Weights given to peers", "listens-to", one_client.weights_by_peer_figure(view)),
        ("Weights received from peers", "listened-to", one_client.weights_by_peer_figure(view, others=True)),
        ("Samples by class", "classes", one_client.class_counts_figure(view)),
        *[("", f"course-{number}", each) for number, each in enumerate(one_client.other_client_curves(view))],
    )
    if view.graph_times.size and view.clusters is not None:
        lead += " Orange marks clients of another true cluster."
    choice = Choice(shown, view.clients[view.worst_first[0]])
    return Section("One client", [*worst_client(view), Paragraph(lead), choice, drawn])


def _observed(view: RunView) -> Section | None:
    """Draw a curve for each quantity that the method's clients or servers observe; None without any."""
    found = [(name, *each) for name in view.observed for each in view.observations(name)]
    shown = [each for each in found if each[:2] != (one_client.STALENESS, "clients")]  # drawn elsewhere
    if not shown:
        return None
    figures = [curves.observation_curve(view, *each) for each in shown]
    drawn = _side_by_side(*[("", f"observed-{number}", each) for number, each in enumerate(figures)])
    lead = "Quantities that the method records with observe(), each averaged between two evaluations."
    return Section("Observations of the method", [Paragraph(lead), drawn])


def _timeline(view: RunView) -> Section:
    title, figure = "Timeline", timeline(view)
    if figure is None:
        return Section(title, [Paragraph("This run used no device.")])
    lead = "Activity of each client's device. The stronger the color, the larger the share of training."
    lead += " Drag over an interval to zoom in, and double-click to zoom out."
    shown = len(clients_shown(view))
    if shown < len(view.clients):
        lead += (
            f" Of {len(view.clients):,} clients, the {shown} with the worst results are shown, worst first."
        )
    blocks: list[Block] = [Paragraph(lead), Legend(figure), Picture("timeline", figure, _LEAST_TIMELINE_PX)]
    bars = work_done(view)
    if bars is not None:
        lead = "Clients are sorted by iterations, fewest first."
        if view.device_s_per_step is not None:
            lead += f" A device is slow if a step takes over {SLOW:g} times the median time."
        blocks += [
            Heading("Iterations by client"),
            Paragraph(lead),
            Picture("work-done", bars, least_px(bars)),
        ]
    return Section(title, blocks)


def _moves(view: RunView) -> Section | None:
    """Show how fast newcomers caught up, and how departures affected the other clients."""
    if not (blocks := _picture("clients-up", curves.clients_up(view))):
        return None
    if (population := view.population) is not None and view.measure is not None:
        measure = view.measure[0]
        rows: list[list[str | Cell]] = [
            [
                view.clients[move.client],
                move.event,
                number_cell(move.time_s, text.duration),
                *_move_effect_text(population, move, measure),
            ]
            for move in view.moves
        ]
        change = "decrease" if measure.higher_is_better else "increase"
        lead = (
            f"Catch-up is the time until a newcomer reaches {measure.caught_up} of the mean "
            f"{measure.name} of the clients that were up before it. The dip is the largest "
            f"{change} of the other clients' mean after a departure. The recovery is the time until the mean "
            "returns to its value before the departure."
        )
        if view.get("population", "newcomers"):
            lead += f" Of the newcomers, {outcome.catching_up(view.get('population'), measure)}."
        dip = "dip (points)" if measure.is_share else "dip"
        heads = ["client", "event", "time", "catch-up", dip, "recovery"]
        blocks += [Paragraph(lead), Table(heads, rows, "arrivals and departures")]
        blocks += _departure_drops_section(view)
    return Section("Arrivals and departures", blocks)


def _departure_drops_section(view: RunView) -> list[Block]:
    """Show the clients with the largest accuracy drops after each departure."""
    table = departure_drops_table(view)
    if table is None:
        return []
    lead = (
        f"For each departure, up to {MOST_HURT} clients with the largest drops are listed. The drop is the "
        "largest decrease before the client returns to its last value before the departure. The relative "
        "weight is the weight that the client gave the departed client, divided by its largest weight. "
        "Accuracy also drops without departures: the usual drop is the 90th percentile of the client's "
        "earlier changes between evaluations. The effects of departures between the same two evaluations "
        "cannot be distinguished."
    )
    return [Heading("Accuracy drops after departures"), Paragraph(lead), table]


def _move_effect_text(population: Population, move: LifecycleEvent, measure: Measure) -> list[Cell]:
    """Return a newcomer's catch-up time, or the dip and the recovery time of the others after a departure."""
    if move.event in ARRIVALS:
        has_others = move.is_newcomer and population.has_incumbents(move)
        return [time_reached_cell(population.catch_up(move)) if has_others else _NOTHING, _NOTHING, _NOTHING]
    dip = population.dip(move.time_s)
    return (
        [_NOTHING] * 3
        if dip is None
        else [_NOTHING, drop_cell(dip.depth, measure), time_reached_cell(dip.seconds)]
    )


def _traffic(view: RunView) -> Section:
    unknown = 'Not recorded: the method does not observe "staleness".'
    parts = (
        ("Bytes by message type", "bytes-by-type", bytes_by_type(view), "No message was sent."),
        ("Staleness of the models used", "staleness", curves.staleness(view), unknown),
        ("Latency of messages", "latencies", latencies(view), ""),
        ("Distribution of staleness over clients", "staleness-spread", staleness_spread(view), ""),
    )
    columns = [
        [Heading(title), *(_picture(name, figure) or [Paragraph(otherwise)])]
        for title, name, figure, otherwise in parts
        if figure is not None or otherwise
    ]
    lead = [Paragraph("Staleness is the age of a received model at its use.")] * (
        view.panel("staleness") is not None
    )
    return Section("Communication", [*lead, SideBySide(columns)])


def _map(view: RunView) -> Section | None:
    """Draw a map of the clients; None if the scenario gives no positions."""
    if (figure := network_map(view)) is None:
        return None
    lead = (
        "Clients and servers that share a position are drawn around this position. The width of a line "
        "shows the "
        f"number of messages between two of them, for the {MOST_MAP_LINES} pairs with the most messages. If "
        "the run kept no messages, there are no lines. Some large cities are labeled for orientation."
    )
    return Section("Network map", [Paragraph(lead), Picture("map", figure, _LEAST_HEAT_MAP_PX)])


def _details(view: RunView) -> Section:
    """List the groups of numbers in the summary; groups without a known value are left out."""
    by_group: list[tuple[str, Callable[[Any], str]]] = [
        ("clients", text.number),
        *[(measure.name, measure.text) for measure in MEASURES],
        ("settled", measure_called(view.get("measure") or "accuracy").text),
        ("target", text.number),
        ("graph", format_ratio),
        ("messages", text.number),
        ("loss_reasons", text.number),
        ("engine", text.number),
        ("device_time", text.duration),
    ]
    named = {group for group, _ in by_group}
    by_group += [
        (key, text.number)
        for key, value in view.summary.items()
        if key not in named and _is_number_table(value)
    ]
    by_key: dict[str, Callable[[Any], str]] = {
        "seconds": text.duration,
        "bytes": text.size,
        "joules": text.energy,
        "memory": text.size,
        "memory_per_client": text.size,
        "device": str,
        "ways": ", ".join,
        "clients": text.number,
        "iterations": text.number,
        **{measure.name: measure.text for measure in MEASURES},
    }
    lists = []
    for group, readable in by_group:
        numbers = view.get(group) or {}
        if all(value is None for value in numbers.values()):
            continue
        shown = {key: value for key, value in numbers.items() if type(value) is not bool}
        rows = [(_key_in_words(key), by_key.get(key, readable)(value)) for key, value in shown.items()]
        lists.append((_key_in_words(group).capitalize(), rows))
    blocks: list[Block] = [Numbers(lists)]
    if view.get("graph", "edge_threshold") is not None:
        blocks.append(Paragraph(f"An edge is a weight {_edge(view)}."))
    return Section("All numbers", blocks)


def _is_number_table(value: object) -> bool:
    """Return whether a value of the summary is a dict that contains only numbers."""
    return isinstance(value, dict) and all(
        number is None or (isinstance(number, int | float) and type(number) is not bool)
        for number in value.values()
    )


def _edge(view: RunView) -> str:
    """Describe the weights that are edges of the learned graph."""
    largest = "client's largest weight" if view.weights_are_shares else "largest possible weight"
    return f"of more than {view.edge_threshold:g} times the {largest}"


def _key_in_words(key: str) -> str:
    return key.replace("_", " ")


_PARTS: tuple[Callable[[RunView], Section | None], ...] = (
    _progress,
    against_simulation,
    live_run_section,
    _fork_comparison,
    _gain_section,
    _graph,
    _coalitions,
    _observed,
    _one_client,
    _timeline,
    _moves,
    _traffic,
    energy,
    _map,
    lambda view: Section("Clients", [clients_table(view)]),
    _details,
    lambda view: Section("Scenario", [Code("scenario.toml with all defaults", view.scenario_text)]),
)
"""Builders of the page's sections, in order. A section that is None is left out."""
