"""Style of the report's pictures, and parts that several pictures share.

Pictures name a color by its CSS variable. The page's script inserts the value for light or dark.
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
    """Return the CSS variable of a color of the palette."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--{name})"


INK, FAINT, EDGE = colour("ink"), colour("faint"), colour("edge")
BLUE, ORANGE, GREEN = colour("blue"), colour("orange"), colour("green")
HUES = tuple(map(colour, palette.HUES))
SYMBOLS = ("circle", "square", "diamond", "pentagon", "hexagram")  # symbols of groups after all hues are used
ARRIVAL, DEPARTURE = "triangle-up", "triangle-down"

_SAME = 0.01  # values that differ by less than this share are drawn as one value
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


def blank_figure(height_px: int) -> Figure:
    """Return an empty figure in the report's style."""
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
    """Return a line, or a dot for one point; `hover` is plotly's template, with `hints` as %{customdata}."""
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
    """Return straight blue lines from `starts` [K, 2] to `ends` [K, 2], without tooltips."""
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
    """Make the x axis virtual time from 0 to `end_s`, and return its unit in seconds."""
    unit_s, unit = text.scale_of_time(end_s)
    figure.update(xaxis={"title": {"text": f"virtual time ({unit})"}, "range": [0, (end_s or 1.0) / unit_s]})
    return unit_s


def log_axis(least: float, most: float) -> dict[str, Any]:
    """Return a logarithmic axis for positive numbers, with ticks at powers of ten or 1, 2 and 5 of each."""
    few = {"dtick": "D2", "tickformat": "~g"} if most <= 100 * least else {"dtick": 1}
    return {"type": "log", "exponentformat": "power"} | few


def is_nearly_constant(least: float, most: float) -> bool:
    """Return whether values differ so little that an axis fitted to them would exaggerate the spread."""
    return 0 < least <= most < (1 + _SAME) * least


def observed_axis(figure: Figure, name: str, values: NDArray[np.float64]) -> None:
    """Set the y axis for an observed quantity."""
    figure.update(yaxis={"title": {"text": name}})
    if is_nearly_constant(float(np.nanmin(values)), float(np.nanmax(values))):
        figure.update(yaxis={"rangemode": "tozero"})


def measure_axis(figure: Figure, measure: Measure) -> None:
    """Set the y axis for a measure."""
    figure.update(yaxis={"title": {"text": measure.label}})
    if measure.is_share:
        figure.update(yaxis={"tickformat": ".0%", "rangemode": "tozero"})


def slider(times_s: Iterable[float], steps: Sequence[Sequence[int]], prefix: str) -> dict[str, Any]:
    """Return a slider over times: each of `steps` lists the numbers of the traces shown at that time.

    The slider starts at the last time. Traces that no step lists are always shown.
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
