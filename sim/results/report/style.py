"""The look of the report's pictures, and parts that many of them have.

Pictures name a colour by its CSS variable. The page's script puts in its value in light or dark.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.results import palette, text
from sim.results.measures import Measure
from sim.results.metrics import Series
from sim.results.palette import FONT, LIGHT
from sim.results.report.figure import Figure, Trace


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
    "automargin": True,
    "gridcolor": colour("grid"),
    "linecolor": EDGE,
    "tickcolor": EDGE,
    "ticklabelstandoff": 4,
    "ticks": "outside",
    "title": {"font": {"color": FAINT, "size": 13}, "standoff": 12},
    "zeroline": False,
}
_FONT = {"color": INK, "family": FONT, "size": 13}
TEMPLATE = {
    "layout": {
        "font": _FONT,
        "hoverlabel": {
            "align": "left",
            "bgcolor": colour("page"),
            "bordercolor": EDGE,
            "font": _FONT,
        },
        "hovermode": "closest",
        "legend": {"font": {"size": 12}, "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"b": 56, "l": 64, "r": 24, "t": 52},  # the toolbar is above the legend
        "modebar": {"activecolor": INK, "bgcolor": "rgba(0,0,0,0)", "color": EDGE},
        "paper_bgcolor": colour("page"),
        "plot_bgcolor": colour("page"),
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}


def blank(height_px: int) -> Figure:
    """An empty figure in the report's style."""
    return Figure({"height": height_px, "template": TEMPLATE})


def line(
    series: Series,
    name: str,
    colour: str,
    hover: str,
    *,
    hints: Sequence | None = None,
    dash: str = "solid",
    shape: str | None = None,
) -> Trace:
    """A line; `hover` is plotly's template, in which `hints` are %{customdata}. One point alone is a dot."""
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
) -> Trace:
    """Straight lines between points [K, 2] and others, in blue, which say nothing when pointed at."""
    gaps = np.full_like(starts, np.nan)  # after each
    x, y = np.stack([starts, ends, gaps], axis=1).reshape(-1, 2).astype(np.float32).T
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"color": BLUE, "width": width},
        "opacity": opacity,
        "name": name,
        "hoverinfo": "skip",
    }


def time_axis(figure: Figure, end_s: float) -> float:
    """Make the x axis virtual time from 0 to `end_s`; returns the unit of its numbers in seconds."""
    unit_s, unit = text.scale_of_time(end_s)
    figure.update(xaxis={"title": {"text": f"virtual time ({unit})"}, "range": [0, (end_s or 1.0) / unit_s]})
    return unit_s


def log_axis(least: float, most: float) -> dict[str, Any]:
    """A logarithmic axis of numbers more than 0: with the powers of ten, or 1, 2 and 5 of each."""
    few = {"dtick": "D2", "tickformat": "~g"} if most <= 100 * least else {"dtick": 1}
    return {"type": "log", "exponentformat": "power"} | few


def is_one_number(least: float, most: float) -> bool:
    """Whether numbers hardly differ: an axis that fits them would show a spread that there is not."""
    return 0 < least <= most < (1 + _SAME) * least


def observed_axis(figure: Figure, name: str, values: NDArray[np.float64]) -> None:
    """Make the y axis what a method observes."""
    figure.update(yaxis={"title": {"text": name}})
    if is_one_number(float(np.nanmin(values)), float(np.nanmax(values))):
        figure.update(yaxis={"rangemode": "tozero"})


def measure_axis(figure: Figure, measure: Measure) -> None:
    """Make the y axis what clients are judged by."""
    figure.update(yaxis={"title": {"text": measure.label}})
    if measure.is_share:
        figure.update(yaxis={"tickformat": ".0%", "rangemode": "tozero"})


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
