"""One look for all of the report's pictures, in light and dark.

A colour means one thing everywhere: blue is collaboration and what it reaches, orange the clients that fare
worst and departures, green arrivals, grey what waits or has no value. The hues are those of Okabe and Ito,
which people with any colour vision tell apart; states differ in lightness, too. Clusters and coalitions
take them in turn: they have places of their own as well.

Pictures name a colour by its CSS variable. The page's script puts in its value in light or dark.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from sim.results import text
from sim.results.metrics import Series

LIGHT = {
    "page": "#ffffff",
    "panel": "#f6f5f2",
    "warning": "#fcf1ea",
    "ink": "#22262b",
    "faint": "#62686f",
    "edge": "#b4b9bf",
    "grid": "#e9e7e2",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#a84a86",
    "yellow": "#a97b00",
    "training": "#003f66",
    "waiting": "#93908b",
    "down": "#ffffff",
    "no-weight": "#ffffff",
    "half-weight": "#78a3c4",
    "full-weight": "#003f66",
    "unknown": "#93908b",
    "band": "rgba(0,114,178,0.15)",
}
DARK = {
    "page": "#16191d",
    "panel": "#1f242a",
    "warning": "#36251a",
    "ink": "#e4e7ea",
    "faint": "#a2a9b1",
    "edge": "#555c64",
    "grid": "#2b3138",
    "blue": "#56b4e9",
    "orange": "#f0913f",
    "green": "#2fc69b",
    "purple": "#e08fc4",
    "yellow": "#e3bd3c",
    "training": "#a8dafc",
    "waiting": "#716e6a",
    "down": "#16191d",
    "no-weight": "#16191d",
    "half-weight": "#35688c",
    "full-weight": "#a8dafc",
    "unknown": "#716e6a",
    "band": "rgba(86,180,233,0.2)",
}


def colour(name: str) -> str:
    """A colour of the two schemes, as a picture names it."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--{name})"


INK, FAINT, EDGE = colour("ink"), colour("faint"), colour("edge")
BLUE, ORANGE, GREEN = colour("blue"), colour("orange"), colour("green")
HUES = (BLUE, GREEN, ORANGE, colour("purple"), colour("yellow"), FAINT)
SYMBOLS = ("circle", "square", "diamond", "pentagon", "hexagram")  # of groups, once the hues are used up
ARRIVAL, DEPARTURE = "triangle-up", "triangle-down"  # by shape, too
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

_AXIS = {
    "gridcolor": colour("grid"),
    "zeroline": False,
    "linecolor": EDGE,
    "ticks": "outside",
    "tickcolor": EDGE,
    "automargin": True,
    "ticklabelstandoff": 4,
    "title": {"font": {"color": FAINT, "size": 13}, "standoff": 12},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": colour("page"),
        "plot_bgcolor": colour("page"),
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {
            "bgcolor": colour("page"),
            "bordercolor": EDGE,
            "font": {"family": FONT, "size": 13, "color": INK},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": EDGE, "activecolor": INK},
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


def slider(times_s: Iterable[float], steps: Sequence[Sequence[int]], prefix: str) -> dict[str, Any]:
    """Shows the traces of one time, of those that are named for any; the last one's to begin with."""
    traces = sorted(trace for step in steps for trace in step)
    return {
        "steps": [
            {
                "method": "restyle",
                "label": text.duration(float(time_s)),
                "args": [{"visible": [trace in step for trace in traces]}, traces],
            }
            for time_s, step in zip(times_s, steps, strict=True)
        ],
        "active": len(steps) - 1,
        "currentvalue": {"prefix": prefix, "font": {"size": 14}},
        "pad": {"t": 72, "b": 8},
        "bgcolor": BLUE,
        "activebgcolor": BLUE,
        "bordercolor": colour("page"),
        "tickcolor": EDGE,
        "ticklen": 4,
        "font": {"color": FAINT, "size": 11},
    }
