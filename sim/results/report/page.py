"""report.html: one self-contained page about a run, built from nothing but its result directory."""

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
    cell,
    reached,
)
from sim.results.report.coalitions import benefit_graph, changes_table, losses_table
from sim.results.report.distributions import latencies, staleness_spread, time_to_accuracy, times_table
from sim.results.report.figure import Figure
from sim.results.report.graph import MOST_LINES, drawn_graph
from sim.results.report.heatmaps import learned_graph
from sim.results.report.html import document, help_note, ratio
from sim.results.report.live import against_simulation, on_sockets
from sim.results.report.network_map import MOST_LINES as MOST_MAP_LINES
from sim.results.report.network_map import network_map
from sim.results.report.tables import MOST_HURT, clients, help_table, hurt_table, worst_client
from sim.results.report.timeline import clients_shown, timeline
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView

_LEAST_HEAT_MAP_PX = 720  # below, what the cells and labels of a heat map say cannot be read
_LEAST_TIMELINE_PX = 560
_REACHED = (
    "By when the mean, half and 90 % of the clients had reached each level, and what all had sent by then."
)
_NOTHING = Cell(text.NOTHING, None)


def write_report(directory: RunDirectory) -> Path:
    """Writes report.html into a result directory, reading nothing else, and returns its path.

    The same directory always gives the same page.
    """
    view = RunView(directory)
    with np.errstate(over="ignore", invalid="ignore"):  # what has diverged too far to be drawn is left out
        sections = [section for part in _PARTS if (section := part(view)) is not None]
        return directory.write_report(document(view, sections))


def _progress(view: RunView) -> Section:
    if view.measure is None:
        return Section("Progress", [Paragraph("Nothing was evaluated in this run.")])
    measure = view.measure[0]
    lead = f"The {measure.label} of the clients that are up, as the observer sees it."
    if view.evaluate_share < 1:
        lead += (
            f" Each evaluation measures a random {text.share(view.evaluate_share)} of them, the last one all."
        )
    if 0 < len(view.moves) <= curves.MOST_MOVE_LINES:
        lead += f" Dotted lines mark arrivals ({curves.UP}) and departures ({curves.DOWN})."
    if measure.name == "accuracy" and any(move.is_newcomer for move in view.moves):
        lead += (
            " The mean falls when a client arrives: from then on its model counts, which has yet to learn."
        )
    if not np.isnan(view.spent_s).all():
        lead += (
            " Dashed lines mark where the first client and the last had spent its budget: from then on it "
            "trains no more, and only merges and serves. Steps per second are of the time until then."
        )
    if models := list(view.get("models") or ()):
        lead += f" Clients have several models ({', '.join(models)}) and are judged by {models[0]}."
    drawn = _side_by_side(
        ("", "progress-over-time", curves.progress_over_time(view)),
        ("", "progress-over-bytes", curves.progress_over_bytes(view)),
        ("", "models-over-time", curves.models_over_time(view)),
    )
    blocks: list[Block] = [Paragraph(lead), drawn]
    if view.others:
        found = [("", f"measure-{each.name}", curves.measured(view, each, of)) for each, of in view.others]
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
    """The pictures that there are, each under its title, if it has one, and with its name."""
    columns = [
        [Heading(title)] * bool(title) + _picture(name, figure)
        for title, name, figure in pictures
        if figure is not None
    ]
    return SideBySide(columns)


def _futures(view: RunView) -> Section | None:
    """A fork beside its parent."""
    if view.fork_s is None:
        return None
    lead = f"This run is a fork of {view.get('fork', 'of')}: the same until {text.duration(view.fork_s)}."
    blocks: list[Block] = [Paragraph(lead), *_picture("two-futures", curves.two_futures(view))]
    if (table := curves.differences(view)) is not None:
        told = "Each client when both futures last measured it."
        blocks += [Heading("The difference by client"), Paragraph(told), table]
    return Section("Two futures", blocks)


def _help(view: RunView) -> Section | None:
    """Each client with its peers beside itself alone; needs run.compare_alone."""
    if not view.gains:
        return None
    lead = (
        "Each client that was up at the end beside the same client alone: as many steps, from the same "
        f"start, on its own data only. Better with peers: {help_note(view)}."
    )
    bars = gains(view)
    blocks = [Paragraph(lead), *_picture("gains", bars, least_px(bars)), help_table(view)]
    return Section("With peers and alone", blocks)


def _graph(view: RunView) -> Section:
    title, figure = "Collaboration graph", learned_graph(view)
    if figure is None:
        return Section(title, [Paragraph("This protocol learned no collaboration graph.")])
    lead = "Row i, column j: the weight that client i gives to client j. "
    lead += "Grey: the client itself, or a client that is not up."
    if len(view.clients) > len(figure.data[0]["x"]):
        lead += " Each cell averages several clients, named at its ends."
    if view.clusters is not None:
        lead += " Clients are ordered by their true cluster"
        lead += ", which the outlines mark." if "shapes" in figure.layout else "."
    blocks: list[Block] = _drawn(view)
    blocks += [Heading("Pair by pair"), Paragraph(lead), Picture("learned-graph", figure, _LEAST_HEAT_MAP_PX)]
    if over_time := _picture("weights-over-time", curves.weights_over_time(view)):
        blocks += [Heading("Mean weight inside and across the true clusters"), *over_time]
    return Section(title, blocks)


def _drawn(view: RunView) -> list[Block]:
    if (figure := drawn_graph(view)) is None:
        return []
    lead = (
        f"A line joins two clients if a weight that one gives the other is an edge, {_edge(view)}. The wider "
        f"and deeper it is, the larger the mean of both. At most {MOST_LINES:,} are drawn."
    )
    if view.clusters is not None:
        lead += " Clients stand together in their true clusters, which give them their colours."
    lead += " Hollow: not up at that time."
    return [Paragraph(lead), Picture("graph", figure)]


def _coalitions(view: RunView) -> Section | None:
    """Who benefits from whom, and who joined whom; None for methods that form no coalitions."""
    if not view.coalition_rows:
        return None
    lead = (
        "An arrow goes to each client from those that it benefits from, at the end. Clients of one colour "
        "are in one coalition. Losses are those of the client's own validation samples: of the best model "
        "for it alone, with all, and with its coalition."
    )
    tables = [losses_table(view), Heading("When coalitions were formed"), changes_table(view)]
    drawn = _picture("benefit-graph", benefit_graph(view))
    return Section("Coalitions", [Paragraph(lead), *drawn, *tables])


def _one_client(view: RunView) -> Section | None:
    """How one client fared, which the reader chooses; None in a run of one."""
    curve, waits = one_client.course(view), one_client.waited_for(view)
    if curve is None:
        return None
    shown = [view.clients[client] for client in sorted(clients_shown(view))]
    lead = (
        "A click on a client anywhere on this page shows it here, the one that fared worst to begin with. "
        "coterie explain, with the number of a client and a time, says what it held and waited for then. "
    )
    if waits is None and not view.has_messages and view.get("messages", "delivered"):
        lead += "Whom it waited for is not known: this run has kept no messages (run.keep_messages)."
    elif waits is None:
        lead += "Nobody's device waited for a message or a timer."
    else:
        lead += (
            "A wait is counted for whose message came at the very instant at which the device went on to "
            "compute; one that no message ended, for a time limit or a pause. What was cut short, by a crash "
            "or the end, is left out."
        )
    drawn = _side_by_side(
        ("How it fared", "course", curve),
        ("What it waited for", "waited-for", waits),
        ("Whom it listens to", "listens-to", one_client.listens_to(view)),
        ("Who listens to it", "listened-to", one_client.listens_to(view, others=True)),
        ("Its classes", "classes", one_client.classes_of(view)),
        *[("", f"course-{number}", each) for number, each in enumerate(one_client.other_courses(view))],
    )
    if view.graph_times.size and view.clusters is not None:
        lead += " Orange: a client of another true cluster."
    choice = Choice(shown, view.clients[view.worst_first[0]])
    return Section("One client", [*worst_client(view), Paragraph(lead), choice, drawn])


def _observed(view: RunView) -> Section | None:
    """A curve for each name under which the method's clients or servers observe something."""
    found = [(name, *each) for name in view.observed for each in view.observations(name)]
    shown = [each for each in found if each[:2] != (one_client.STALENESS, "clients")]  # which is shown below
    if not shown:
        return None
    figures = [curves.observed(view, *each) for each in shown]
    drawn = _side_by_side(*[("", f"observed-{number}", each) for number, each in enumerate(figures)])
    lead = "What the method itself observes: the mean of each from one evaluation to the next."
    return Section("What the method observes", [Paragraph(lead), drawn])


def _timeline(view: RunView) -> Section:
    title, figure = "Timeline", timeline(view)
    if figure is None:
        return Section(title, [Paragraph("No device was used in this run.")])
    lead = "What each client's device did. The deeper the colour, the more of that moment went into training."
    lead += " Drag over a stretch to see it closer, and click twice to see all again."
    shown = len(clients_shown(view))
    if shown < len(view.clients):
        lead += f" The {shown} of {len(view.clients):,} clients that fare worst, the worst on top."
    blocks: list[Block] = [Paragraph(lead), Legend(figure), Picture("timeline", figure, _LEAST_TIMELINE_PX)]
    bars = work_done(view)
    if bars is not None:
        lead = "The fewest first."
        if view.device_s_per_step is not None:
            lead += f" Slow is a device that takes more than {SLOW:g} times the median one's time for a step."
        blocks += [
            Heading("Iterations done"),
            Paragraph(lead),
            Picture("work-done", bars, least_px(bars)),
        ]
    return Section(title, blocks)


def _moves(view: RunView) -> Section | None:
    """How fast newcomers caught up, and what departures cost the others."""
    if not (blocks := _picture("clients-up", curves.clients_up(view))):
        return None
    if (population := view.population) is not None and view.measure is not None:
        measure = view.measure[0]
        rows: list[list[str | Cell]] = [
            [
                view.clients[move.client],
                move.event,
                cell(move.time_s, text.duration),
                *_consequence(population, move, measure),
            ]
            for move in view.moves
        ]
        lead = (
            f"Catch-up: time until a newcomer has {measure.caught_up} of the mean {measure.name} of those "
            f"who were there before. Dip and recovery: how far the mean of the others {measure.worsened} "
            "after a departure, and when it was back."
        )
        if view.get("population", "newcomers"):
            lead += f" Of the newcomers, {outcome.catching_up(view.get('population'), measure)}."
        heads = ["client", "event", "time", "catch-up", "dip", "recovery"]
        blocks += [Paragraph(lead), Table(heads, rows, "arrivals and departures")]
        blocks += _hurt(view)
    return Section("Arrivals and departures", blocks)


def _hurt(view: RunView) -> list[Block]:
    """Who was hurt by which departure, by the clients' own curves."""
    table = hurt_table(view)
    if table is None:
        return []
    lead = (
        f"Those that fell farthest after each departure, up to {MOST_HURT}: by how much until they were back "
        "at their last value before. Relative weight: what they had given the one that went, of the most "
        "that they gave anybody. Curves fall without any reason, too: the last column has the fall between "
        "two evaluations that a tenth of those before exceeded. Departures between the same two evaluations "
        "cannot be told apart."
    )
    return [Heading("Who was hurt by which departure"), Paragraph(lead), table]


def _consequence(population: Population, move: LifecycleEvent, measure: Measure) -> list[Cell]:
    """How long a newcomer took to catch up; how much worse others were after a departure, and how long."""
    if move.event in ARRIVALS:
        has_others = move.is_newcomer and population.has_incumbents(move)
        return [reached(population.catch_up(move)) if has_others else _NOTHING, _NOTHING, _NOTHING]
    dip = population.dip(move.time_s)
    return [_NOTHING] * 3 if dip is None else [_NOTHING, cell(dip.depth, measure.text), reached(dip.seconds)]


def _traffic(view: RunView) -> Section:
    unknown = 'Not recorded: the clients observe no "staleness".'
    parts = (
        ("Bytes by message type", "bytes-by-type", bytes_by_type(view), "No message was sent."),
        ("Staleness of the models used", "staleness", curves.staleness(view), unknown),
        ("Latency of messages", "latencies", latencies(view), ""),
        ("Distribution of staleness", "staleness-spread", staleness_spread(view), ""),
    )
    columns = [
        [Heading(title), *(_picture(name, figure) or [Paragraph(otherwise)])]
        for title, name, figure, otherwise in parts
        if figure is not None or otherwise
    ]
    return Section("Communication", [SideBySide(columns)])


def _map(view: RunView) -> Section | None:
    """Where clients are on the globe, if they are anywhere."""
    if (figure := network_map(view)) is None:
        return None
    lead = (
        "Those at one place stand around it. A line is as wide as the number of messages that two sent "
        f"each other, for the {MOST_MAP_LINES} pairs with the most; there is none where messages were not "
        "kept. The names are those of some large cities, for orientation."
    )
    return Section("Network map", [Paragraph(lead), Picture("map", figure, _LEAST_HEAT_MAP_PX)])


def _details(view: RunView) -> Section:
    """All of the summary's groups of numbers; a group in which nothing is known is left out."""
    by_group: list[tuple[str, Callable[[Any], str]]] = [
        ("clients", text.number),
        *[(measure.name, measure.text) for measure in MEASURES],
        ("settled", measure_called(view.get("measure") or "accuracy").text),
        ("target", text.number),
        ("graph", ratio),
        ("messages", text.number),
        ("loss_reasons", text.number),
        ("engine", text.number),
        ("device_time", text.duration),
    ]
    named = {group for group, _ in by_group}
    by_group += [
        (key, text.number) for key, value in view.summary.items() if key not in named and _counts(value)
    ]
    by_key: dict[str, Callable[[Any], str]] = {
        "seconds": text.duration,
        "bytes": text.size,
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
        rows = [(_words(key), by_key.get(key, readable)(value)) for key, value in shown.items()]
        lists.append((_words(group).capitalize(), rows))
    blocks: list[Block] = [Numbers(lists)]
    if view.get("graph", "edge_threshold") is not None:
        blocks.append(Paragraph(f"An edge is a weight {_edge(view)}."))
    return Section("All numbers", blocks)


def _counts(value: object) -> bool:
    """Whether a value of the summary is a group of nothing but numbers."""
    return isinstance(value, dict) and all(
        number is None or (isinstance(number, int | float) and type(number) is not bool)
        for number in value.values()
    )


def _edge(view: RunView) -> str:
    """Which weights are edges of the learned graph."""
    largest = "largest of its client" if view.weights_are_shares else "largest possible one"
    return f"of more than {view.edge_threshold:g} times the {largest}"


def _words(key: str) -> str:
    return key.replace("_", " ")


_PARTS: tuple[Callable[[RunView], Section | None], ...] = (
    _progress,
    against_simulation,
    on_sockets,
    _futures,
    _help,
    _graph,
    _coalitions,
    _observed,
    _one_client,
    _timeline,
    _moves,
    _traffic,
    _map,
    lambda view: Section("Clients", [clients(view)]),
    _details,
    lambda view: Section("Scenario", [Code("scenario.toml, as resolved", view.scenario_text)]),
)
"""The sections of the page, in order; None is left out. A picture is a figure and its name in one of them."""
