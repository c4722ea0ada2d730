"""What the runs of `benchmarks.weather` came to, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from benchmarks.measuring import table
from sim.results.metrics import beside_largest, graph_summary, time_to_target
from sim.results.view import RunView

CALM = "calm"
NOTABLE = 0.02
"""Accuracy lost to a weather from which on a cell is marked."""
REACHED = 0.9
"""Share of the calm accuracy whose time is told."""
Cells = Mapping[tuple[str, str], "Cell"]
"""(method, weather) -> its runs."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to. Accuracies are shares of 1, at the end, but for `seconds`."""

    accuracy: float
    """Mean of the clients that were not struck."""
    calm: float
    """Mean of the same clients in calm weather, with the same seed."""
    struck: float | None
    """Mean of those that were struck and are up: the slow ones and the newcomers."""
    worst: float
    """Mean of the worst tenth of all that are up."""
    graph: tuple[float | None, float | None]
    """Precision and recall of the learned edges among all that are up."""
    graph_of_others: tuple[float | None, float | None]
    """The same among the clients that were not struck."""
    seconds: float | None
    """Virtual time until `accuracy` was `REACHED` of `calm`; None if it never was."""
    messages: int
    finished: bool
    """Whether neither a client nor the whole run got stuck or failed."""


def outcome(view: RunView, calm: RunView, struck: Sequence[int]) -> Outcome:
    """What a run came to, beside the calm one of the same method and seed; `struck` by number."""
    assert view.measure is not None
    others = np.array([client not in struck for client in range(len(view.clients))])
    end = view.at_the_end
    expected = float(calm.at_the_end[np.flatnonzero(others)].mean())
    return Outcome(
        accuracy=float(end[others].mean()),
        calm=expected,
        struck=_mean(end[~others].tolist()),
        worst=view.summary["accuracy"]["worst_decile"],
        graph=(view.get("graph", "edge_precision"), view.get("graph", "edge_recall")),
        graph_of_others=_graph(view, np.flatnonzero(others).tolist()),
        seconds=time_to_target(view.measure[1].mean_of(others), REACHED * expected),
        messages=view.summary["messages"]["sent"],
        finished=view.summary["finished"],
    )


def _graph(view: RunView, members: Sequence[int]) -> tuple[float | None, float | None]:
    """Precision and recall of the last graph among some clients."""
    times, threshold = view.snapshot_times(2), view.get("graph", "edge_threshold")
    if view.clusters is None or threshold is None or not times.size:
        return None, None
    source, target, weight = (column.tolist() for column in view.snapshot(times[-1]))
    weights = dict(zip(zip(source, target, strict=True), weight, strict=True))
    if view.get("graph", "weights_are_shares"):
        weights = beside_largest(weights)
    found = graph_summary(weights, view.clusters.tolist(), members, threshold=threshold)
    return found["edge_precision"], found["edge_recall"]


@dataclass(frozen=True)
class Cell:
    """The runs of one method in one weather, a seed each."""

    outcomes: tuple[Outcome, ...]

    def mean(self, value: Callable[[Outcome], float | None]) -> float | None:
        """Mean over the seeds that have a value; None if none has."""
        return _mean([value(outcome) for outcome in self.outcomes])

    @property
    def accuracy(self) -> float:
        """Of the clients that were not struck."""
        return fmean(outcome.accuracy for outcome in self.outcomes)

    @property
    def gained(self) -> float:
        """Accuracy beside calm weather of the clients that were not struck: what was lost is below 0."""
        return fmean(outcome.accuracy - outcome.calm for outcome in self.outcomes)

    @property
    def figure(self) -> str:
        """The accuracy and its standard deviation over the seeds, in %."""
        accuracies = [outcome.accuracy for outcome in self.outcomes]
        spread = f" ± {100 * stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
        return f"{100 * self.accuracy:.1f}{spread}"

    @property
    def time(self) -> str:
        """Mean virtual seconds to nearly the calm accuracy; a dash if a seed never came there."""
        reached = [outcome.seconds for outcome in self.outcomes if outcome.seconds is not None]
        return f"{fmean(reached):.0f} s" if len(reached) == len(self.outcomes) else "-"

    @property
    def mark(self) -> str:
        """Says where not every run came to its end."""
        return "" if all(outcome.finished for outcome in self.outcomes) else " !"


def falls_below(cells: Cells, method: str, weather: str, control: str | None) -> bool:
    """Whether the clients not struck do worse than those of the control, if any, in the same weather."""
    if control is None or (control, weather) not in cells:
        return False
    return cells[method, weather].accuracy < cells[control, weather].accuracy


def page(tables: Mapping[tuple[str, str], Cells], controls: Mapping[str, str | None]) -> str:
    """Markdown: for each (data, family) the table of all weathers, then one for each weather.

    controls: method -> the one that it is held against; None for one that is such itself.
    """
    sections = []
    for (data, title), cells in tables.items():
        if cells:
            sections += [f"## {title}, {data}", overview(cells, controls), *details(cells)]
    return "\n\n".join(sections)


def overview(cells: Cells, controls: Mapping[str, str | None]) -> str:
    """Accuracy of the clients not struck, methods by weathers."""
    methods, weathers = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))

    def entry(method: str, weather: str) -> str:
        cell = cells[method, weather]
        below = "†" if falls_below(cells, method, weather, controls[method]) else ""
        if weather == CALM:
            return f"{cell.figure}{below}{cell.mark}"
        gained = f"({100 * cell.gained:+.1f})"
        return f"{cell.figure} {f'**{gained}**' if cell.gained < -NOTABLE else gained}{below}{cell.mark}"

    rows = ([method, *[entry(method, weather) for weather in weathers]] for method in methods)
    return table(["method", *weathers], rows)


DETAILS: dict[str, Callable[[Cell], str]] = {
    "not struck, %": lambda cell: cell.figure + cell.mark,
    "against calm": lambda cell: f"{100 * cell.gained:+.1f}",
    "struck, %": lambda cell: _percent(cell.mean(lambda outcome: outcome.struck)),
    "worst tenth, %": lambda cell: _percent(cell.mean(lambda outcome: outcome.worst)),
    "precision": lambda cell: _ratio(cell.mean(lambda outcome: outcome.graph[0])),
    "recall": lambda cell: _ratio(cell.mean(lambda outcome: outcome.graph[1])),
    "precision, not struck": lambda cell: _ratio(cell.mean(lambda outcome: outcome.graph_of_others[0])),
    "recall, not struck": lambda cell: _ratio(cell.mean(lambda outcome: outcome.graph_of_others[1])),
    "to 90 % of calm": lambda cell: cell.time,
    "messages": lambda cell: f"{cell.mean(lambda outcome: outcome.messages):,.0f}",
}
"""Column of a weather's table -> its entry."""


def details(cells: Cells) -> list[str]:
    """A table for each weather, folded away."""
    methods, weathers = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    return [
        f"<details><summary>{weather}</summary>\n\n"
        + table(
            ["method", *DETAILS],
            ([method, *[entry(cells[method, weather]) for entry in DETAILS.values()]] for method in methods),
        )
        + "\n\n</details>"
        for weather in weathers
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of those that are numbers."""
    known = [value for value in values if value is not None and not np.isnan(value)]
    return fmean(known) if known else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _ratio(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
