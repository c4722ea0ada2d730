"""Bar charts of the report. Each builder returns a figure, or None if the run has no data for it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import BLUE, EDGE, GREEN, ORANGE, blank_figure
from sim.results.view import RunView

SLOW = 2.0
"""A device is slow if its training step takes over SLOW times the median time."""
_MOST_LABELS = 60  # names under bars


def bytes_by_type(view: RunView) -> Figure | None:
    totals = view.get("bytes_by_type")
    if not totals:
        return None
    rows = sorted(((size, count, name) for name, (count, size) in totals.items()))
    factor, unit = text.scale_of_size(rows[-1][0])
    figure = blank_figure(max(300, 110 + 34 * len(rows)))
    figure.add(
        {
            "type": "bar",
            "x": [size / factor for size, _, _ in rows],
            "y": [text.message_type(name) for _, _, name in rows],
            "orientation": "h",
            "marker": {"color": BLUE},
            "width": 0.55,
            "text": [f"{text.size(size)} in {count:,} messages" for size, count, _ in rows],
            # "auto" would omit the text of the shortest bars.
            "textposition": ["inside" if 2 * size > rows[-1][0] else "outside" for size, _, _ in rows],
            "insidetextanchor": "start",
            "hovertemplate": "%{y}: <b>%{text}</b><extra></extra>",
        }
    )
    figure.update(
        xaxis={"title": {"text": f"sent ({unit})"}, "rangemode": "tozero"},
        yaxis={"showgrid": False, "ticks": ""},
    )
    return figure


def work_done(view: RunView) -> Figure | None:
    """Draw the iterations of each client, fewest first, with slow devices highlighted."""
    done = view.iterations
    if done is None or len(view.clients) < 2 or not done.any():
        return None
    order = np.argsort(done, kind="stable")
    step_s = view.device_s_per_step
    slow = np.full(len(done), False) if step_s is None else step_s > SLOW * np.nanmedian(step_s)
    hints = [[view.clients[client], _step_time_hint(step_s, client)] for client in order.tolist()]
    hover = "%{customdata[0]} <b>%{y:,}</b> iterations%{customdata[1]}<extra></extra>"
    groups = (("slow devices", slow[order], ORANGE), ("other devices", ~slow[order], BLUE))
    figure = _bars(done[order], groups, hints, hover)
    figure.update(yaxis={"title": {"text": "iterations"}, "rangemode": "tozero"}, showlegend=bool(slow.any()))
    return figure


def _step_time_hint(step_s: NDArray[np.float64] | None, client: int) -> str:
    if step_s is None or np.isnan(step_s[client]):
        return ""
    return f"<br>{text.duration(float(step_s[client]))} of device time per step"


def gains(view: RunView) -> Figure | None:
    """Draw each client's gain with its peers over training alone, smallest gain first."""
    if len(view.gains) < 2 or view.measure is None:
        return None
    measure = view.measure[0]
    differences = np.array([gain.difference for gain in view.gains])
    better = differences > 0
    hints = [
        [view.clients[client], measure.text(with_peers), measure.text(alone)]
        for client, with_peers, alone, _ in view.gains
    ]
    shown = "%{y:+.1f} points" if measure.is_share else "%{y:+.4~g}"
    hover = f"%{{customdata[0]}} <b>{shown}</b><br>"
    hover += "with peers %{customdata[1]}, alone %{customdata[2]}<extra></extra>"
    groups = (("better with peers", better, GREEN), ("not better", ~better, ORANGE))
    figure = _bars(differences * (100 if measure.is_share else 1), groups, hints, hover)
    unit = " (percentage points)" if measure.is_share else ""
    figure.update(yaxis={"title": {"text": f"improvement{unit}"}, "zeroline": True, "zerolinecolor": EDGE})
    return figure


def least_px(figure: Figure | None) -> int:
    """Return the width below which the names under the bars of `work_done` or `gains` would overlap."""
    return 90 + 15 * len(figure.layout["xaxis"]["tickvals"]) if figure is not None else 0


def _bars(
    heights: NDArray[np.float64],
    groups: Sequence[tuple[str, NDArray[np.bool_], str]],
    hints: Sequence[Sequence[str]],
    hover: str,
) -> Figure:
    """Draw a bar for each client, with the first of its hints as the name below it if there is room.

    groups: (name, mask of the clients, color).
    """
    figure = blank_figure(300)
    for name, chosen, fill in groups:
        if columns := np.flatnonzero(chosen).tolist():
            bar: Trace = {
                "type": "bar",
                "x": columns,
                "y": heights[columns],
                "name": name,
                "hovertemplate": hover,
            }
            bar |= {"marker": {"color": fill, "line": {"width": 0}}}
            figure.add(bar | {"customdata": [hints[column] for column in columns]})
    names = [name for name, *_ in hints]
    labeled = (
        list(range(0, len(names), -(-len(names) // _MOST_LABELS))) if len(names) <= 2 * _MOST_LABELS else []
    )
    axis = {
        "title": {"text": "" if labeled else f"{len(names):,} clients"},
        "tickvals": labeled,
        "ticktext": [names[column] for column in labeled],
        "tickangle": -60,
        "showgrid": False,
        "ticks": "",
    }
    figure.update(xaxis=axis, bargap=0.25 if len(names) <= _MOST_LABELS else 0)
    return figure
