"""The look of the report's pictures, and parts that many of them have.

Pictures name a colour by its CSS variable. The page's script puts in its value in light or dark.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from sim.results import palette, text
from sim.results.measures import Measure
from sim.results.metrics import Series
from sim.results.palette import FONT, LIGHT


def colour(name: str) -> str:
    """The CSS variable of a colour of the palette, as a picture names it."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--{name})"


INK, FAINT, EDGE = colour("ink"), colour("faint"), colour("edge")
BLUE, ORANGE, GREEN = colour("blue"), colour("orange"), colour("green")
HUES = tuple(map(colour, palette.HUES))
SYMBOLS = ("circle", "square", "diamond", "pentagon", "hexagram")  # of groups, once the hues are used up
ARRIVAL, DEPARTURE = "triangle-up", "triangle-down"  # by shape, too

_SAME = 0.01  # the share by which numbers differ that are drawn as if they were one
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
        "margin": {"l": 64, "r": 24, "t": 52, "b": 56},  # the toolbar is above the legend
        "hovermode": "closest",
    }
)


def blank(height_px: int) -> go.Figure:
    """An empty figure in the report's style."""
    return go.Figure(layout={"template": TEMPLATE, "height": height_px})


def line(
    series: Series,
    name: str,
    colour: str,
    hover: str,
    *,
    hints: Sequence | None = None,
    dash: str = "solid",
    shape: str | None = None,
) -> dict[str, Any]:
    """A line; `hover` is plotly's template, in which `hints` are %{customdata}. One point alone is a dot.

    It is a trace in words, as which it is checked once, where it comes into a figure.
    """
    return {
        "type": "scatter",
        "x": series.times,
        "y": series.values,
        "name": name,
        "mode": "lines" if len(series.times) > 1 else "markers",
        "line": {"color": colour, "width": 2.2, "dash": dash, "shape": shape},
        "customdata": hints,
        "hovertemplate": hover + "<extra></extra>",
    }


def strokes(
    starts: NDArray[np.float64], ends: NDArray[np.float64], width: float, opacity: float, name: str
) -> go.Scatter:
    """Straight lines between points [K, 2] and others, in blue, which say nothing when pointed at."""
    gaps = np.full_like(starts, np.nan)  # after each
    x, y = np.stack([starts, ends, gaps], axis=1).reshape(-1, 2).astype(np.float32).T
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": BLUE, "width": width},
        opacity=opacity,
        name=name,
        hoverinfo="skip",
    )


def time_axis(figure: go.Figure, end_s: float) -> float:
    """Make the x axis virtual time from 0 to `end_s`; returns the unit of its numbers in seconds."""
    unit_s, unit = text.scale_of_time(end_s)
    figure.update_xaxes(title_text=f"virtual time ({unit})", range=[0, (end_s or 1.0) / unit_s])
    return unit_s


def log_axis(least: float, most: float) -> dict[str, Any]:
    """A logarithmic axis of numbers more than 0: with the powers of ten, or 1, 2 and 5 of each."""
    few = {"dtick": "D2", "tickformat": "~g"} if most <= 100 * least else {"dtick": 1}
    return {"type": "log", "exponentformat": "power"} | few


def is_one_number(least: float, most: float) -> bool:
    """Whether numbers hardly differ: an axis that fits them would show a spread that there is not."""
    return 0 < least <= most < (1 + _SAME) * least


def observed_axis(figure: go.Figure, name: str, values: NDArray[np.float64]) -> None:
    """Make the y axis what a method observes."""
    figure.update_yaxes(title_text=name)
    if is_one_number(float(np.nanmin(values)), float(np.nanmax(values))):
        figure.update_yaxes(rangemode="tozero")


def measure_axis(figure: go.Figure, measure: Measure) -> None:
    """Make the y axis what clients are judged by."""
    figure.update_yaxes(title_text=measure.label)
    if measure.is_share:
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def slider(times_s: Iterable[float], steps: Sequence[Sequence[int]], prefix: str) -> dict[str, Any]:
    """A slider over times: each of `steps` lists the traces (by number) that are shown at that time.

    It begins at the last time. Traces that no step lists are always shown.
    """
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
