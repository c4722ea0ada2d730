"""The report's bars. Each builder gives a figure, or None where the run has no data for it."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from sim.results import text
from sim.results.report.style import BLUE, EDGE, GREEN, ORANGE, blank
from sim.results.view import RunView

SLOW = 2.0
"""A device is slow that takes more than so many times the median device's time for a training step."""
_MOST_LABELS = 60  # names under bars


def bytes_by_type(view: RunView) -> go.Figure | None:
    """Bytes sent, by message type."""
    totals = view.get("bytes_by_type")
    if not totals:
        return None
    rows = sorted(((size, count, name) for name, (count, size) in totals.items()))
    factor, unit = text.scale_of_size(rows[-1][0])
    figure = blank(max(300, 110 + 34 * len(rows)))
    figure.add_trace(
        go.Bar(
            x=[size / factor for size, _, _ in rows],
            y=[text.message_type(name) for _, _, name in rows],
            orientation="h",
            marker_color=BLUE,
            width=0.55,
            text=[f"{text.size(size)} in {count:,} messages" for size, count, _ in rows],
            # "auto" would leave out the text of the shortest bars.
            textposition=["inside" if 2 * size > rows[-1][0] else "outside" for size, _, _ in rows],
            insidetextanchor="start",
            hovertemplate="%{y}: <b>%{text}</b><extra></extra>",
        )
    )
    figure.update_xaxes(title_text=f"sent ({unit})", rangemode="tozero")
    figure.update_yaxes(showgrid=False, ticks="")
    return figure


def work_done(view: RunView) -> go.Figure | None:
    """Iterations of each client, the fewest first; those with slow devices stand out."""
    done = view.iterations
    if done is None or len(view.clients) < 2 or not done.any():
        return None
    order = np.argsort(done, kind="stable")
    step_s = view.device_s_per_step
    slow = np.full(len(done), False) if step_s is None else step_s > SLOW * np.nanmedian(step_s)
    figure = blank(300)
    for name, chosen, fill in (("slow device", slow, ORANGE), ("others", ~slow, BLUE)):
        places = np.flatnonzero(chosen[order])
        if not places.size:
            continue
        clients = order[places].tolist()
        hints = [[view.clients[client], _per_step(step_s, client)] for client in clients]
        hover = "%{customdata[0]} <b>%{y:,}</b> iterations%{customdata[1]}<extra></extra>"
        figure.add_trace(_bars(places.tolist(), done[clients], name, fill, hints, hover))
    _name_bars(figure, [view.clients[client] for client in order.tolist()])
    figure.update_yaxes(title_text="iterations done", rangemode="tozero")
    figure.update_layout(showlegend=bool(slow.any()))
    return figure


def _per_step(step_s: NDArray[np.float64] | None, client: int) -> str:
    if step_s is None or np.isnan(step_s[client]):
        return ""
    return f"<br>{text.duration(float(step_s[client]))} of its device per step"


def gains(view: RunView) -> go.Figure | None:
    """By how much each client is better off with its peers than alone, the least helped first."""
    if len(view.gains) < 2 or view.measure is None:
        return None
    measure = view.measure[0]
    figure = blank(300)
    differences = np.array([gain.difference for gain in view.gains])
    for name, chosen, fill in (
        ("better with peers", differences > 0, GREEN),
        ("not better", differences <= 0, ORANGE),
    ):
        places = np.flatnonzero(chosen).tolist()
        if not places:
            continue
        hints = [
            [view.clients[client], measure.text(with_peers), measure.text(alone)]
            for client, with_peers, alone, _ in (view.gains[place] for place in places)
        ]
        shown = "%{y:+.1f} points" if measure.is_share else "%{y:+.4~g}"
        hover = f"%{{customdata[0]}} <b>{shown}</b><br>"
        hover += "with peers %{customdata[1]}, alone %{customdata[2]}<extra></extra>"
        heights = differences[places] * (100 if measure.is_share else 1)
        figure.add_trace(_bars(places, heights, name, fill, hints, hover))
    _name_bars(figure, [view.clients[gain.client] for gain in view.gains])
    unit = " (percentage points)" if measure.is_share else ""
    figure.update_yaxes(title_text=f"better by{unit}", zeroline=True, zerolinecolor=EDGE)
    return figure


def least_px(figure: go.Figure | None) -> int:
    """The width below which the names under the bars of `work_done` or `gains` would overlap."""
    return 90 + 15 * len(figure.layout.xaxis.tickvals) if figure is not None else 0


def _bars(
    places: list[int], heights: NDArray[np.float64], name: str, fill: str, hints: list[list[str]], hover: str
) -> go.Bar:
    marker = {"color": fill, "line": {"width": 0}}
    return go.Bar(x=places, y=heights, name=name, marker=marker, customdata=hints, hovertemplate=hover)


def _name_bars(figure: go.Figure, names: list[str]) -> None:
    """Puts as many names under the bars, which stand at 0, 1, 2 ..., as are readable there."""
    places = (
        list(range(0, len(names), -(-len(names) // _MOST_LABELS))) if len(names) <= 2 * _MOST_LABELS else []
    )
    figure.update_xaxes(
        tickvals=places,
        ticktext=[names[place] for place in places],
        tickangle=-60,
        showgrid=False,
        ticks="",
        title_text="" if places else f"{len(names):,} clients",
    )
    figure.update_layout(bargap=0.25 if len(names) <= _MOST_LABELS else 0)
