"""The report's tables of clients: what each did and reached, and what help was worth to each."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import ALONE
from sim.results.population import LifecycleEvent
from sim.results.report import blocks
from sim.results.report.blocks import Cell, Table
from sim.results.view import RunView
from sim.results.waits import kept_waiting_s

Column = tuple[str, Sequence[str | Cell]]


def clients(view: RunView) -> Table:
    """One row per client, with the columns that this run has; those that fare worst come first."""
    order = view.worst_first
    columns: list[Column] = [("client", list(view.clients))]
    if view.happenings:
        last = {happening.client: happening for happening in view.happenings if happening.event != "stop"}
        columns.append(("last event", [_last_event(last.get(client)) for client in range(len(view.clients))]))
    if view.clusters is not None:
        columns.append(("cluster", [blocks.number(int(cluster)) for cluster in view.clusters]))
    columns += _results(view) + _work(view)
    rows: list[list[str | Cell]] = [[values[client] for _, values in columns] for client in order]
    how = "" if view.measure is None else "the worst first"
    return Table([name for name, _ in columns], rows, "clients", how)


def help_table(view: RunView) -> Table:
    """What each client reached with its peers and alone, the least helped first."""
    assert view.measure is not None
    is_share = view.measure[0].is_share
    readable = blocks.share if is_share else blocks.number
    difference = blocks.points if is_share else blocks.number
    rows: list[list[str | Cell]] = [
        [
            view.clients[gain.client],
            readable(gain.with_peers),
            readable(gain.alone),
            difference(gain.difference),
        ]
        for gain in view.gains
    ]
    heads = ["client", "with peers", "alone", "better by (points)" if is_share else "better by"]
    return Table(heads, rows, "clients", "the least helped first")


def _results(view: RunView) -> list[Column]:
    if view.measure is None:
        return []
    measure = view.measure[0]
    readable = blocks.share if measure.is_share else blocks.number
    last = view.last(measure.name)
    assert last is not None
    diverged = set(view.get("non_finite", "at_end") or ())
    columns: list[Column] = [
        (
            measure.label,
            [
                Cell("not finite", None) if name in diverged else readable(value)
                for name, value in zip(view.clients, _known(last), strict=True)
            ],
        )
    ]
    alone = view.last(measure.name + ALONE)
    if alone is not None:
        columns.append(("alone", [readable(value) for value in _known(alone)]))
    return columns


def _work(view: RunView) -> list[Column]:
    """How much each client did, and how fast its device is."""
    columns: list[Column] = []
    if view.iterations is not None:
        columns.append(("iterations", [blocks.number(int(count)) for count in view.iterations]))
    steps, busy_s, up_s = view.last("training_steps"), view.busy_s, view.up_s
    if steps is not None:
        columns.append(("steps", [blocks.number(int(count)) for count in np.nan_to_num(steps)]))
        columns.append(("steps/s", [blocks.number(value) for value in _ratio(steps, up_s)]))
    for name, head in (("gradients", "gradients"), ("samples_seen", "samples seen")):
        if (counts := view.last(name)) is not None and counts.any():
            columns.append((head, [blocks.number(int(count)) for count in np.nan_to_num(counts)]))
    if (step_s := view.device_s_per_step) is not None:
        columns.append(("device time per step", [blocks.seconds(value) for value in _known(step_s)]))
    if busy_s is not None:
        columns.append(("up", [blocks.seconds(value) for value in up_s.tolist()]))
        columns.append(("training", [blocks.share(value) for value in _ratio(busy_s, up_s)]))
    if (kept_s := kept_waiting_s(view)) is not None:
        waited_s = [kept_s.get(name, 0.0) for name in view.clients]
        columns.append(("others waited for it", [blocks.seconds(value) for value in waited_s]))
    return columns


def _last_event(happening: LifecycleEvent | None) -> str:
    return text.NOTHING if happening is None else f"{happening.event} at {text.duration(happening.time_s)}"


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> list[float | None]:
    """Client by client; None where there is nothing to divide by."""
    return [a / b if b > 0 else None for a, b in zip(above.tolist(), below.tolist(), strict=True)]
