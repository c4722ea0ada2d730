"""What the command line shows: a line of progress during a run, and the table of results at its end."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from sim.results import text

_PLAIN_EVERY_S = 10.0


class ProgressLine:
    """A callable that shows how far a run is: a bar on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._printed_s = time.monotonic()
        if console.is_terminal:
            self._bar = Progress(
                BarColumn(24), TextColumn("{task.description}"), console=console, transient=True
            )
            self._task = self._bar.add_task("starting")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Show a line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __call__(
        self,
        virtual_s: float,
        duration_s: float | None,
        mean_accuracy: float | None,
        clients_up: int,
        messages: int,
        updates_per_wall_s: float,
    ) -> None:
        """Show the state at `virtual_s`; `duration_s` is None for a run that ends by iterations."""
        line = ", ".join(
            (
                text.duration(virtual_s) + (f" of {text.duration(duration_s)}" if duration_s else ""),
                *([f"accuracy {text.share(mean_accuracy)}"] if mean_accuracy is not None else ()),
                f"{clients_up} clients up",
                f"{messages:,} messages",
                f"{updates_per_wall_s:,.0f} updates/s",
            )
        )
        if self._bar is not None:
            self._bar.update(self._task, description=line, completed=virtual_s, total=duration_s)
        elif time.monotonic() - self._printed_s >= _PLAIN_EVERY_S:
            self._printed_s = time.monotonic()
            self._console.print(line, highlight=False, soft_wrap=True)


def results_table(summary: Mapping[str, Any]) -> Table:
    """The table of a run's summary.json. Rows without a value in this run are left out."""
    table = Table(
        title=escape(f"{summary['scenario']}, seed {summary['seed']}"), show_header=False, min_width=60
    )
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(summary):
        table.add_row(name, escape(value))
    return table


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    accuracy, graph, clients = summary["accuracy"], summary["graph"], summary["clients"]
    messages, wall_s = summary["messages"], summary["wall_seconds"]
    rows = [("protocol", str(summary["protocol"]))]
    if accuracy["mean"] is not None:
        spread = f"± {text.share(accuracy['std'])}, worst 10 %: {text.share(accuracy['worst_decile'])}"
        rows.append(("accuracy", f"{text.share(accuracy['mean'])} {spread}"))
    if summary["better_than_alone"] is not None:
        rows.append(("better than alone", f"{text.share(summary['better_than_alone'])} of the clients"))
    if graph["l1"] is not None:
        edges = f"precision {text.share(graph['edge_precision'])}, recall {text.share(graph['edge_recall'])}"
        rows.append(("learned graph", f"edges: {edges}; L1 distance {text.number(graph['l1'])}"))
    moves = [f"{clients[move]} {move}" for move in ("joined", "left", "crashed") if clients[move]]
    rows.append(
        ("clients", ", ".join([f"{clients['initial']} at first", *moves, f"{clients['alive']} at the end"]))
    )
    rows += _population_rows(summary["population"])
    fates = [f"{messages[fate]:,} {fate}" for fate in ("lost", "dropped", "duplicated") if messages[fate]]
    rows.append(("messages", ", ".join([f"{messages['sent']:,} ({text.size(messages['bytes'])})", *fates])))
    membership = summary["membership"]
    if membership["sent"]:
        share = text.share(membership["bytes"] / messages["bytes"])
        counted = f"{membership['sent']:,} ({text.size(membership['bytes'])}, {share} of all bytes)"
        rows.append(("of them membership", counted))
    rows.append(
        ("time", f"{text.duration(summary['virtual_seconds'])} virtual, {text.duration(wall_s)} real")
    )
    engine = summary["engine"]
    if wall_s > 0:
        rows.append(("updates", f"{engine['updates']:,} ({engine['updates'] / wall_s:,.0f}/s)"))
    memory = f"{text.size(engine['memory'])} of vectors, {text.size(engine['memory_per_client'])} per client"
    rows.append(("engine", f"{', '.join(engine['ways'])} on {engine['device']}; {memory}"))
    rows.append(("trace hash", str(summary["trace_hash"])))
    return rows


def _population_rows(population: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """How newcomers caught up and how the others fared; nothing where nobody came or went."""
    rows: list[tuple[str, str]] = []
    if population is None:
        return rows
    if population["newcomers"]:
        times = population["catch_up_seconds"]
        took = f" after {text.duration(times['median'])} (median)" if times["median"] is not None else ""
        caught_up = f"{population['caught_up']} of {population['newcomers']}"
        rows.append(("newcomers", f"{caught_up} reached 90 % of the others' accuracy{took}"))
    if population["departures"]:
        times = population["recovery_seconds"]
        took = f", at most {text.duration(times['max'])} after it" if times["max"] is not None else ""
        dip = f"accuracy fell by {text.share(population['deepest_dip'])} at most"
        back = f"back after {population['recovered']} of {population['departures']}"
        rows.append(("departures", f"{dip}; {back}{took}"))
    return rows
