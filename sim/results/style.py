"""One look for all of the report's pictures.

A colour means one thing everywhere: blue is collaboration and what it reaches, red the clients that fare
worst and departures, green arrivals, sand idle time, grey absence.
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from sim.results.metrics import Series

BLUE, RED, GREEN, SAND, GREY = "#1f5c99", "#c0452f", "#2c8a57", "#e7dfcd", "#c3c7cd"
INK, FAINT, GRID, ABSENT = "#22262b", "#6b7178", "#ebe9e4", "#eeeeec"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

_AXIS = {
    "gridcolor": GRID,
    "zeroline": False,
    "linecolor": GREY,
    "ticks": "outside",
    "tickcolor": GREY,
    "automargin": True,
    "ticklabelstandoff": 4,
    "title": {"font": {"color": FAINT, "size": 13}, "standoff": 12},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {
            "bgcolor": "white",
            "bordercolor": GREY,
            "font": {"family": FONT, "size": 13, "color": INK},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"l": 64, "r": 24, "t": 40, "b": 56},
        "hovermode": "closest",
    }
)


def blank(height_px: int) -> go.Figure:
    """An empty figure in the report's style."""
    return go.Figure(layout={"template": TEMPLATE, "height": height_px})


def line(
    series: Series, name: str, colour: str, hover: str, *, hints: Sequence | None = None, dash: str = "solid"
) -> go.Scatter:
    """A line; `hover` is plotly's template, in which `hints` are %{customdata}. One point alone is a dot."""
    return go.Scatter(
        x=series.times,
        y=series.values,
        name=name,
        mode="lines" if len(series.times) > 1 else "markers",
        line={"color": colour, "width": 2.2, "dash": dash},
        customdata=hints,
        hovertemplate=hover + "<extra></extra>",
    )
