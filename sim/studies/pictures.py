"""Pictures of a comparison, as PNG and SVG files for papers."""

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
from sim.results.kaplan_meier import CensoredTimes, survival, survival_known_until
from sim.results.measures import measure_called
from sim.results.metrics import Series
from sim.results.palette import HUES, LIGHT
from sim.studies.comparison import Comparison
from sim.studies.groups import GroupMetric, SeedGroup, is_a_number
from sim.studies.index import Value
from sim.studies.statistics import Estimate, mean_curve
from sim.studies.study import CATCH_UP, higher_is_better, metric_bounds, values_at_times
from sim.studies.tables import display_factor, label_with_unit, metric_label, metric_unit
from sim.studies.tables import value_text as shown_as

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = [LIGHT[name] for name in HUES]  # lines also differ by marker
_MARKERS = "os^Dv<>P"
_DASHES = ("-", "--", ":", "-.")
_LINES_MAX = len(_COLOURS)  # more lines cannot be distinguished
_PANELS_MAX = 12
ENDINGS = ("png", "svg")
_DPI, _MARGIN_INCHES = 200, 0.1
_LETTER_INCHES, _ROW_INCHES, _HANDLE_INCHES = 0.065, 0.17, 0.5  # of a legend's entries
_ROWS_WITHIN = 3  # rows of a legend that need no taller figure
_FAINT: Any = {"fontsize": 8, "color": LIGHT["faint"]}
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LIGHT["grid"],
    "legend.frameon": False,
    "text.parse_math": False,  # names of users may contain dollar signs
    "svg.hashsalt": "coterie",  # the same data give the same file
    "svg.fonttype": "none",
}


def write_pictures(comparison: Comparison, folder: Path) -> dict[str, str]:
    """Write all pictures as <name>.png and <name>.svg, and return their titles by name."""
    # matplotlib obeys a matplotlibrc in the current folder: import it in the folder of its defaults.
    package = find_spec("matplotlib")
    assert package is not None and package.origin is not None
    with chdir(Path(package.origin).parent / "mpl-data"):
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

    drawn: dict[str, tuple[str, Callable[[], Figure | None]]] = {}
    for metric in comparison.metrics:
        file = metric.replace(".", "-")
        drawn[f"curves-{file}"] = (f"{metric_label(metric)} over time", partial(_curves, comparison, metric))
        if comparison.by is not None:
            title = f"final {metric_label(metric)} by {comparison.study.label(comparison.by)}"
            drawn[f"by-{file}"] = (title, partial(_by_axis, comparison, metric))
    drawn["profile"] = (
        "performance profile: share of clients that reach each result",
        partial(_profile, comparison),
    )
    drawn["target"] = ("cost of reaching the target", partial(_target_cost_picture, comparison))
    drawn["catching-up"] = ("share of newcomers that have not caught up", partial(_catching_up, comparison))
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
    """Write a picture as PNG and SVG, with one layout, since a layout takes longer than drawing."""
    figure.set_dpi(_DPI)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    box = figure.get_tightbbox().padded(_MARGIN_INCHES)
    for ending, data in zip(ENDINGS, ({"Software": None}, {"Date": None}), strict=True):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=_DPI, bbox_inches=box, metadata=data)


def _seeds(comparison: Comparison, metric: str = "") -> str:
    """Describe the seeds of a picture and, for a metric per client, the clients that count."""
    groups, only = comparison.groups, comparison.study.clients
    counts = sorted({len(group.runs) for group in groups})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}\N{EN DASH}{counts[-1]}"
    intervals = ", 95% intervals" if counts[-1] > 1 else ""
    excluded = (
        ", without the clients that each case excludes" if any(group.excluded for group in groups) else ""
    )
    of_some = f", clients {only}" if only and metric and comparison.study.is_of_clients(metric) else ""
    return f"{number} seed{'s' * (counts[-1] != 1)}{intervals}{excluded}{of_some}"


def _label(comparison: Comparison, group: SeedGroup) -> str:
    """Return the label of a group's line: its values on all axes but `by`."""
    named = [axis for axis in comparison.varied if axis != comparison.by]
    return ", ".join(str(group.values[axis]) for axis in named) or "all runs"


class _LineStyle(NamedTuple):
    """The style of a line, the same in all pictures."""

    colour: str
    marker: str
    dashes: str


def _styles(comparison: Comparison) -> dict[str, _LineStyle]:
    names = dict.fromkeys(_label(comparison, group) for group in comparison.groups)
    return {name: _nth_style(number) for number, name in enumerate(names)}


def _nth_style(number: int) -> _LineStyle:
    cycle, index = divmod(number, len(_COLOURS))
    marker = _MARKERS[(index + cycle) % len(_MARKERS)]
    return _LineStyle(_COLOURS[index], marker, _DASHES[cycle % len(_DASHES)])


def _panels(comparison: Comparison) -> Mapping[Value | None, list[SeedGroup]]:
    """Return the groups of each panel by the value of the axis `by`; one panel for one or too many values."""
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
    width = _HANDLE_INCHES + _LETTER_INCHES * max(map(len, known), default=0)
    columns = max(1, min(len(known), 3, int(figure.get_figwidth() / width)))
    rows = math.ceil(len(known) / columns)
    figure.set_figheight(figure.get_figheight() + _ROW_INCHES * max(0, rows - _ROWS_WITHIN))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _draw_panels(
    comparison: Comparison,
    found: Mapping[int, tuple[NDArray, NDArray]],
    times: NDArray,
    names: tuple[str, str, str],
    ends: tuple[float, float],
    *,
    steps: bool = False,
) -> Figure:
    """Draw curves over time with their intervals, in one panel for each value of the axis `by`.

    found: mean [T] and half width [T] by the id() of the group. names: titles of x axis, y axis and picture.
    ends: limits to which intervals are clipped.
    """
    panels, styles = _panels(comparison), _styles(comparison)
    figure, axes = _grid(len(panels))
    for ax, (value, groups) in zip(axes, panels.items(), strict=True):
        for number, group in enumerate(groups):
            if id(group) not in found:
                continue
            mean, half = found[id(group)]
            name = _label(comparison, group) if len(panels) > 1 else group.label
            colour, _, dashes = styles[name] if len(panels) > 1 else _nth_style(number)
            drawn = "steps-post" if steps else "default"
            [line] = ax.plot(times, mean, label=name, color=colour, linestyle=dashes, drawstyle=drawn)
            low, high = np.clip(mean - half, *ends), np.clip(mean + half, *ends)
            shape: Any = "post" if steps else None
            ax.fill_between(times, low, high, color=line.get_color(), alpha=0.15, linewidth=0, step=shape)
        if value is not None:
            assert comparison.by is not None
            ax.set_title(f"{comparison.study.label(comparison.by)} = {value}", fontsize=9)
    columns = 3 if len(axes) != 4 else 2
    for ax in axes[-columns:]:  # the bottom panel of each column
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
    scale, (per_unit, unit) = display_factor(metric), text.scale_of_time(float(times[-1]))
    shown = {id(group): (scale * mean, scale * half) for group, mean, half in curves}
    low, high = metric_bounds(metric)
    names = f"virtual time [{unit}]", label_with_unit(metric), _seeds(comparison, metric)
    return _draw_panels(comparison, shown, times / per_unit, names, (scale * low, scale * high))


def _draw_along(
    comparison: Comparison,
    ax: Axes,
    found: Sequence[tuple[SeedGroup, Estimate]],
    scale: float = 1.0,
    hollow: Sequence[bool] = (),
) -> None:
    """Draw estimates by the values of the axis `by`, with a line for each combination of the other axes.

    hollow: for each estimate, whether its marker is hollow.
    """
    assert comparison.by is not None
    values, styles = comparison.study.axes[comparison.by], _styles(comparison)
    is_number = all(map(is_a_number, values))
    positions = {value: float(value) if is_number else float(n) for n, value in enumerate(values)}
    span = 0.008 * (max(positions.values()) - min(positions.values())) if is_number else 0.6 / len(styles)
    for number, (name, (colour, marker, _)) in enumerate(styles.items()):
        own = [n for n, (group, _) in enumerate(found) if _label(comparison, group) == name]
        shift = (number - (len(styles) - 1) / 2) * span  # intervals must not overlap
        x = [positions[found[n][0].values[comparison.by]] + shift for n in own]
        y = [scale * found[n][1].mean for n in own]
        each = [found[n][1] for n in own]
        sides = [[one.mean - one.low for one in each], [one.high - one.mean for one in each]]
        half = scale * np.nan_to_num(np.array(sides))
        marks: Any = {"marker": marker, "markersize": 4} if not hollow else {}
        between = "-" if is_number else "none"
        ax.errorbar(x, y, yerr=half, label=name, color=colour, capsize=3, linestyle=between, **marks)
        for n, position, mean in zip(own, x, y, strict=True) if hollow else ():
            face = "white" if hollow[n] else colour
            ax.plot(position, mean, marker, color=colour, markerfacecolor=face, markersize=5)
    if not is_number:
        rotation = 20 if sum(len(str(value)) for value in positions) > 40 else 0
        ax.set_xticks(list(positions.values()), [str(value) for value in positions], rotation=rotation)
    elif min(positions.values()) > 0 and max(positions.values()) >= 50 * min(positions.values()):
        ax.set_xscale("log")
    ax.set_xlabel(comparison.study.label(comparison.by))


def _by_axis(comparison: Comparison, metric: str) -> Figure | None:
    """Draw a final metric by the values of the axis `by`, with a line per combination of other axes."""
    lines = [line for line in comparison.lines if line.metric == metric and line.estimate.runs]
    if not lines:
        return None
    if len(_styles(comparison)) > _LINES_MAX:
        return _metric_heat_map(comparison, lines)
    figure, [ax] = _grid(1)
    _draw_along(comparison, ax, [(line.group, line.estimate) for line in lines], display_factor(metric))
    ax.set_ylabel(label_with_unit(metric))
    ax.set_title(f"final {metric_label(metric)}, {_seeds(comparison, metric)}", **_FAINT)
    _legend(figure, [ax])
    return figure


def _metric_heat_map(comparison: Comparison, lines: Sequence[GroupMetric]) -> Figure:
    """Draw a final metric as a heat map: blue cells are above the baseline, orange cells below."""
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap

    assert comparison.by is not None
    metric, columns = lines[0].metric, comparison.study.axes[comparison.by]
    rows = list(dict.fromkeys(_label(comparison, line.group) for line in lines))
    names = max(map(len, rows)) * _LETTER_INCHES, max(len(str(column)) for column in columns)
    size = 0.9 + names[0] + 0.85 * len(columns), 0.8 + 0.24 * len(rows) + 0.02 * names[1]
    figure, ax = pyplot.subplots(figsize=size, layout="constrained")
    differences = np.full((len(rows), len(columns)), math.nan)
    for line in lines:
        row = rows.index(_label(comparison, line.group))
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
    ground = f"color: difference from {comparison.baseline_text}, blue above, orange below"
    ax.set_title(f"final {label_with_unit(metric)}, {_seeds(comparison, metric)}; {ground}", **_FAINT)
    return figure


_COSTS = {"seconds": "virtual time [s]", "bytes": "bytes sent", "joules": "energy [J]"}


def _target_cost_picture(comparison: Comparison) -> Figure | None:
    """Draw the costs of the target, one panel per kind; hollow markers if some runs do not reach it."""
    kinds = comparison.kinds
    if comparison.by is None or not kinds:
        return None
    figure, axes = _grid(len(kinds), alike=False)
    for ax, kind in zip(axes, kinds, strict=True):
        own = [target for target in comparison.targets if target.kind == kind]
        spent = [(target.group, target.spent) for target in own]
        _draw_along(comparison, ax, spent, hollow=[target.is_least for target in own])
        ax.set_ylabel(_COSTS.get(kind, kind))
    measure = comparison.study.measure
    goal = f"{display_factor(measure) * (comparison.target or 0):g} {metric_unit(measure)}".strip()
    title = f"cost of reaching {metric_label(measure)} {goal}; "
    title += "hollow markers: lower bound, because some runs do not reach it"
    figure.suptitle(f"{title} ({_seeds(comparison, measure)})", **_FAINT)
    _legend(figure, axes)
    return figure


def _catching_up(comparison: Comparison) -> Figure | None:
    """Draw the share of each group's newcomers that have not caught up, by Kaplan and Meier."""
    found = {id(group): [run.waits[CATCH_UP] for run in group.runs] for group in comparison.groups}
    known = {group: [each for each in runs if each.at.size] for group, runs in found.items()}
    longest = max([float(each.times.max()) for runs in known.values() for each in runs], default=0.0)
    if not longest:
        return None
    times = np.linspace(0, longest, 201)
    rows = {group: [100 * _share_behind(each, times) for each in runs] for group, runs in known.items()}
    curves = {group: mean_curve(np.array(shares)) for group, shares in rows.items() if shares}
    measure = measure_called(comparison.study.measure)
    caught_up = f"caught up: reached {measure.caught_up} of other clients' {measure.name}"
    y = "newcomers that have not caught up [%]"
    names = "time since arrival [s]", y, f"Kaplan-Meier, {_seeds(comparison)}; {caught_up}"
    return _draw_panels(comparison, curves, times, names, (0, 100), steps=True)


def _profile(comparison: Comparison) -> Figure | None:
    """Draw the share of the clients of a group's runs that are at least as good as each result."""
    measure, known = comparison.study.measure, {}
    for group in comparison.groups:
        ends = [run.finals(measure) for run in group.runs]
        known[id(group)] = [each for each in ends if each is not None and not np.isnan(each).all()]
    every = [each for ends in known.values() for each in ends]
    if not every or measure not in comparison.metrics:
        return None
    results = np.linspace(min(map(np.nanmin, every)), max(map(np.nanmax, every)), 201)
    sign = 1 if higher_is_better(measure) else -1
    rows = {
        group: np.array([_share_reaching(sign * each, sign * results) for each in ends])
        for group, ends in known.items()
        if ends
    }
    curves = {group: mean_curve(shares) for group, shares in rows.items()}
    direction = "at least" if sign > 0 else "at most"
    names = label_with_unit(measure), f"clients with {direction} this result [%]", _seeds(comparison, measure)
    return _draw_panels(comparison, curves, display_factor(measure) * results, names, (0, 100))


def _share_reaching(ends: NDArray, results: NDArray) -> NDArray:
    return 100 * (ends[~np.isnan(ends), None] >= results).mean(axis=0)


def _share_behind(reached: CensoredTimes, times: np.ndarray) -> np.ndarray:
    shares = values_at_times(Series(*survival(reached)), times, hold=True)
    return np.where(times <= survival_known_until(reached), shares, np.nan)
