"""The pictures of a comparison, as PNG and SVG files for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.kaplan_meier import Reached, known_until, survival
from sim.results.metrics import Series
from sim.results.palette import HUES, LIGHT
from sim.studies.comparison import Comparison, Line, SeedGroup, is_a_number
from sim.studies.index import Value
from sim.studies.statistics import Estimate, curve
from sim.studies.study import CATCH_UP, at_times, bounds_of
from sim.studies.tables import figure as shown_as
from sim.studies.tables import name_of, scale_of, titled, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = [LIGHT[name] for name in HUES]  # lines differ by marker, too
_MARKERS = "os^Dv<>P"
_DASHES = ("-", "--", ":", "-.")
_LINES_MAX = len(_COLOURS)  # of more than so many lines nobody tells one from another
_PANELS_MAX = 12
_DPI, _MARGIN_INCHES = 200, 0.1
_FAINT: Any = {"fontsize": 8, "color": LIGHT["faint"]}
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LIGHT["grid"],
    "legend.frameon": False,
    "text.parse_math": False,  # names are the user's, and may have dollars
    "svg.hashsalt": "coterie",  # so that the same numbers give the same file
    "svg.fonttype": "none",
}


def write_pictures(comparison: Comparison, folder: Path) -> dict[str, str]:
    """Write all pictures, each as <name>.png and <name>.svg; their titles by name."""
    # What it finds in the current folder it obeys, be it a stranger's: here it finds what it brings.
    package = find_spec("matplotlib")
    assert package is not None and package.origin is not None
    with chdir(Path(package.origin).parent / "mpl-data"):
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

    drawn: dict[str, tuple[str, Callable[[], Figure | None]]] = {}
    for metric in comparison.metrics:
        file = metric.replace(".", "-")
        drawn[f"curves-{file}"] = (f"{name_of(metric)} over time", partial(_curves, comparison, metric))
        if comparison.by is not None:
            title = f"{name_of(metric)} at the end by {comparison.study.label(comparison.by)}"
            drawn[f"by-{file}"] = (title, partial(_by_axis, comparison, metric))
    drawn["target"] = ("what the target takes", partial(_to_target, comparison))
    drawn["catching-up"] = ("newcomers that have yet to catch up", partial(_catching_up, comparison))
    titles = {}
    with pyplot.rc_context(_STYLE):
        for name, (title, draw) in drawn.items():
            figure = draw()
            if figure is None:
                continue
            _save(figure, folder / name)
            pyplot.close(figure)
            titles[name] = title
    return titles


def _save(figure: Figure, path: Path) -> None:
    """Write a picture as PNG and as SVG. It is laid out once, which takes longer than to draw it."""
    figure.set_dpi(_DPI)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    box = figure.get_tightbbox().padded(_MARGIN_INCHES)
    for ending, data in (("png", {"Software": None}), ("svg", {"Date": None})):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=_DPI, bbox_inches=box, metadata=data)


def _seeds(comparison: Comparison, metric: str = "") -> str:
    """How many seeds a picture's numbers are of, and for a `metric` of clients of which clients, in words."""
    groups, only = comparison.groups, comparison.study.clients
    counts = sorted({len(group.runs) for group in groups})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}\N{EN DASH}{counts[-1]}"
    intervals = ", 95 % intervals" if counts[-1] > 1 else ""
    excluded = (
        ", each without the clients that it excludes" if any(group.excluded for group in groups) else ""
    )
    of_some = f", clients {only}" if only and metric and comparison.study.is_of_clients(metric) else ""
    return f"{number} seed{'s' * (counts[-1] != 1)}{intervals}{excluded}{of_some}"


def _rest(comparison: Comparison, group: SeedGroup) -> str:
    """A group's name without its value on the axis that the picture is drawn along."""
    named = [axis for axis in comparison.varied if axis != comparison.by]
    return ", ".join(str(group.values[axis]) for axis in named) or "all runs"


class _Look(NamedTuple):
    """How a line is drawn, the same in all pictures."""

    colour: str
    marker: str
    dashes: str


def _look(comparison: Comparison) -> dict[str, _Look]:
    names = dict.fromkeys(_rest(comparison, group) for group in comparison.groups)
    return {name: _nth_look(number) for number, name in enumerate(names)}


def _nth_look(number: int) -> _Look:
    round_, place = divmod(number, len(_COLOURS))
    marker = _MARKERS[(place + round_) % len(_MARKERS)]
    return _Look(_COLOURS[place], marker, _DASHES[round_ % len(_DASHES)])


def _panels(comparison: Comparison) -> Mapping[Value | None, list[SeedGroup]]:
    """The groups of each panel, by the value of the axis drawn along; one panel if there are too many."""
    axis = comparison.by
    values = () if axis is None else comparison.study.axes[axis]
    if axis is None or not 1 < len(values) <= _PANELS_MAX:
        return {None: comparison.groups}
    found = {value: [group for group in comparison.groups if group.values[axis] == value] for value in values}
    return {value: groups for value, groups in found.items() if groups}


def _grid(count: int, *, alike: bool = True) -> tuple[Figure, list[Axes]]:
    from matplotlib import pyplot

    columns = min(count, 3 if count != 4 else 2)
    rows = math.ceil(count / columns)
    size = (3.3 * columns + 0.5, 2.6 * rows + 0.4) if count > 1 else (5.2, 3.4)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=size, sharex=alike, sharey=alike, squeeze=False, layout="constrained"
    )
    flat = list(axes.flat)
    for empty in flat[count:]:
        empty.set_visible(False)
    return figure, flat[:count]


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    known: dict[str, Any] = {}
    for each in axes:
        handles, labels = each.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    columns = max(1, min(len(known), 3))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _panelled(
    comparison: Comparison,
    found: Mapping[int, tuple[NDArray, NDArray]],
    times: NDArray,
    names: tuple[str, str, str],
    ends: tuple[float, float],
    *,
    steps: bool = False,
) -> Figure:
    """Lines over time with their intervals, in a panel for each value of the axis that is drawn along.

    found: mean [T] and half width [T] by the identity of the group. names: of x, of y and of the picture.
    ends: where intervals are cut off.
    """
    panels, look = _panels(comparison), _look(comparison)
    figure, axes = _grid(len(panels))
    for ax, (value, groups) in zip(axes, panels.items(), strict=True):
        for number, group in enumerate(groups):
            if id(group) not in found:
                continue
            mean, half = found[id(group)]
            name = _rest(comparison, group) if len(panels) > 1 else group.label
            colour, _, dashes = look[name] if len(panels) > 1 else _nth_look(number)
            drawn = "steps-post" if steps else "default"
            [line] = ax.plot(times, mean, label=name, color=colour, linestyle=dashes, drawstyle=drawn)
            low, high = np.clip(mean - half, *ends), np.clip(mean + half, *ends)
            shape: Any = "post" if steps else None
            ax.fill_between(times, low, high, color=line.get_color(), alpha=0.15, linewidth=0, step=shape)
        if value is not None:
            assert comparison.by is not None
            ax.set_title(f"{comparison.study.label(comparison.by)} = {value}", fontsize=9)
    columns = 3 if len(axes) != 4 else 2
    for ax in axes[-columns:]:  # the lowest panel of each column
        ax.set_xlabel(names[0])
        ax.tick_params(labelbottom=True)
    figure.supylabel(names[1], fontsize=9)
    figure.suptitle(names[2], **_FAINT)
    _legend(figure, axes)
    return figure


def _curves(comparison: Comparison, metric: str) -> Figure | None:
    times, curves = comparison.curves(metric)
    if not curves:
        return None
    scale, (per_unit, unit) = scale_of(metric), text.scale_of_time(float(times[-1]))
    shown = {id(group): (scale * mean, scale * half) for group, mean, half in curves}
    low, high = bounds_of(metric)
    names = f"virtual time [{unit}]", titled(metric), _seeds(comparison, metric)
    return _panelled(comparison, shown, times / per_unit, names, (scale * low, scale * high))


def _draw_along(
    comparison: Comparison,
    ax: Axes,
    found: Sequence[tuple[SeedGroup, Estimate]],
    scale: float = 1.0,
    hollow: Sequence[bool] = (),
) -> None:
    """Estimates by the values of the axis, a line for what differs beside it.

    hollow: for each estimate whether its mark is not filled.
    """
    assert comparison.by is not None
    values, look = comparison.study.axes[comparison.by], _look(comparison)
    is_number = all(map(is_a_number, values))
    places = {value: float(value) if is_number else float(n) for n, value in enumerate(values)}
    span = 0.008 * (max(places.values()) - min(places.values())) if is_number else 0.6 / len(look)
    for number, (name, (colour, marker, _)) in enumerate(look.items()):
        own = [n for n, (group, _) in enumerate(found) if _rest(comparison, group) == name]
        shift = (number - (len(look) - 1) / 2) * span  # so that intervals do not hide each other
        x = [places[found[n][0].values[comparison.by]] + shift for n in own]
        y = [scale * found[n][1].mean for n in own]
        each = [found[n][1] for n in own]
        sides = [[one.mean - one.low for one in each], [one.high - one.mean for one in each]]
        half = scale * np.nan_to_num(np.array(sides))
        marks: Any = {"marker": marker, "markersize": 4} if not hollow else {}
        between = "-" if is_number else "none"
        ax.errorbar(x, y, yerr=half, label=name, color=colour, capsize=3, linestyle=between, **marks)
        for n, place, mean in zip(own, x, y, strict=True) if hollow else ():
            face = "white" if hollow[n] else colour
            ax.plot(place, mean, marker, color=colour, markerfacecolor=face, markersize=5)
    if not is_number:
        rotation = 20 if sum(len(str(value)) for value in places) > 40 else 0
        ax.set_xticks(list(places.values()), [str(value) for value in places], rotation=rotation)
    elif min(places.values()) > 0 and max(places.values()) >= 50 * min(places.values()):
        ax.set_xscale("log")
    ax.set_xlabel(comparison.study.label(comparison.by))


def _by_axis(comparison: Comparison, metric: str) -> Figure | None:
    """A metric at the end by the values of an axis, a line for what differs beside it."""
    lines = [line for line in comparison.lines if line.metric == metric and line.estimate.runs]
    if not lines:
        return None
    if len(_look(comparison)) > _LINES_MAX:
        return _map(comparison, lines)
    figure, [ax] = _grid(1)
    _draw_along(comparison, ax, [(line.group, line.estimate) for line in lines], scale_of(metric))
    ax.set_ylabel(titled(metric))
    ax.set_title(f"{name_of(metric)} at the end, {_seeds(comparison, metric)}", **_FAINT)
    _legend(figure, [ax])
    return figure


def _map(comparison: Comparison, lines: Sequence[Line]) -> Figure:
    """A metric at the end as a table; blue cells are above the baseline, orange ones below."""
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap

    assert comparison.by is not None
    metric, columns = lines[0].metric, comparison.study.axes[comparison.by]
    rows = list(dict.fromkeys(_rest(comparison, line.group) for line in lines))
    figure, ax = pyplot.subplots(
        figsize=(1.6 + 0.85 * len(columns), 0.8 + 0.24 * len(rows)), layout="constrained"
    )
    differences = np.full((len(rows), len(columns)), math.nan)
    for line in lines:
        row = rows.index(_rest(comparison, line.group))
        column = columns.index(line.group.values[comparison.by])
        if line.against is not None:
            differences[row, column] = line.against.difference.mean
        mark = "*" * line.is_significant
        shown = shown_as(line.estimate.mean, metric)
        ax.text(column, row, f"{shown}{mark}", ha="center", va="center", fontsize=7)
    largest = float(np.nanmax(np.abs(differences), initial=0.0)) or 1.0
    colours = LinearSegmentedColormap.from_list("", [LIGHT["orange"], "white", LIGHT["blue"]])
    ax.imshow(differences, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", alpha=0.7)
    ax.set_xticks(range(len(columns)), [str(column) for column in columns], rotation=20, fontsize=7)
    ax.set_yticks(range(len(rows)), rows, fontsize=7)
    ax.set_xlabel(comparison.study.label(comparison.by))
    ax.grid(visible=False)
    ground = f"ground: difference to {comparison.baseline_text}, blue more, orange less"
    ax.set_title(f"{titled(metric)} at the end, {_seeds(comparison, metric)}; {ground}", **_FAINT)
    return figure


def _to_target(comparison: Comparison) -> Figure | None:
    """The costs of reaching the target, a panel for each kind; hollow where some runs never reach it."""
    kinds = comparison.kinds
    if comparison.by is None or not kinds:
        return None
    figure, axes = _grid(len(kinds), alike=False)
    for ax, kind in zip(axes, kinds, strict=True):
        own = [target for target in comparison.targets if target.kind == kind]
        spent = [(target.group, target.spent) for target in own]
        _draw_along(comparison, ax, spent, hollow=[target.is_least for target in own])
        ax.set_ylabel({"seconds": "virtual time [s]", "bytes": "bytes sent"}.get(kind, kind))
    measure = comparison.study.measure
    goal = f"{scale_of(measure) * (comparison.target or 0):g} {unit_of(measure)}".strip()
    title = f"{name_of(measure)} of {goal}: what it takes; hollow: not all runs reach it"
    figure.suptitle(f"{title} ({_seeds(comparison, measure)})", **_FAINT)
    _legend(figure, axes)
    return figure


def _catching_up(comparison: Comparison) -> Figure | None:
    """The share of each group's newcomers that are still behind over time, by Kaplan and Meier."""
    found = {id(group): [run.waits[CATCH_UP] for run in group.runs] for group in comparison.groups}
    known = {group: [each for each in runs if each.at.size] for group, runs in found.items()}
    longest = max([float(each.times.max()) for runs in known.values() for each in runs], default=0.0)
    if not longest:
        return None
    times = np.linspace(0, longest, 201)
    rows = {group: [100 * _share_behind(each, times) for each in runs] for group, runs in known.items()}
    curves = {group: curve(np.array(shares)) for group, shares in rows.items() if shares}
    y = "newcomers below 90 % of the others' accuracy [%]"
    names = "time since arrival [s]", y, f"Kaplan-Meier, {_seeds(comparison)}"
    return _panelled(comparison, curves, times, names, (0, 100), steps=True)


def _share_behind(reached: Reached, times: np.ndarray) -> np.ndarray:
    shares = at_times(Series(*survival(reached)), times, hold=True)
    return np.where(times <= known_until(reached), shares, np.nan)
