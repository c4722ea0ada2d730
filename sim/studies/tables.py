"""A comparison as tables: as CSV, as LaTeX, for the terminal and for the page."""

import math
from pathlib import Path
from typing import Any

import polars as pl

from sim.results import text
from sim.results.view import MEASURES
from sim.studies.comparison import BUDGETS, Comparison, Line, SeedGroup, Target
from sim.studies.statistics import Estimate
from sim.studies.study import CATCH_UP, RECOVERY, WAITS, WORST, higher_is_better

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
_SHARES = {measure.name for measure in MEASURES if measure.is_share} | {"graph", "population.deepest_dip"}
_SECONDS = ("seconds", "_s", *WAITS)
_NAMES = {
    "graph.l1": "graph error (l1)",
    CATCH_UP: "newcomers' catch-up",
    RECOVERY: "recovery from departures",
    "population.deepest_dip": "deepest dip",
}


def is_share(metric: str) -> bool:
    """Whether a metric is shown in percent."""
    first = metric.partition(".")[0]
    return metric in _SHARES or first == "accuracy" or first.startswith("accuracy_")


def name_of(metric: str) -> str:
    """What a metric is called, without its unit."""
    if metric.endswith(WORST):
        return f"{name_of(metric.removesuffix(WORST))}, worst 10 %"
    labels = {measure.name: measure.label for measure in MEASURES}
    return _NAMES.get(metric) or labels.get(metric) or metric.replace("_", " ").replace(".", ", ")


def unit_of(metric: str) -> str:
    """The unit in which a metric is shown."""
    return "%" if is_share(metric) else "s" if metric.endswith(_SECONDS) else ""


def titled(metric: str) -> str:
    """Name and unit of a metric."""
    unit = unit_of(metric)
    return f"{name_of(metric)} [{unit}]" if unit else name_of(metric)


def scale_of(metric: str) -> float:
    """The factor from a metric's numbers to those that are shown."""
    return 100.0 if is_share(metric) else 1.0


def figure(number: float, metric: str) -> str:
    """A number of a metric, without its unit."""
    if math.isnan(number):
        return text.NOTHING
    return f"{100 * number:.1f}" if is_share(metric) else f"{number:.3g}"


def interval(found: Estimate, metric: str) -> str:
    """Mean and half width."""
    if math.isnan(found.high):
        return figure(found.mean, metric)
    return f"{figure(found.mean, metric)} {PLUS_MINUS} {figure(found.high - found.mean, metric)}"


def difference(line: Line) -> str:
    """A group's difference to its baseline, with * where it is significant."""
    if line.against is None:
        return ""
    found = line.against.difference
    sign = "+" if found.mean > 0 else ""
    return f"{sign}{interval(found, line.metric)}{'*' if line.is_significant else ''}"


def cost(number: float, kind: str) -> str:
    """A cost of a target in its unit."""
    if math.isnan(number):
        return text.NOTHING
    shown = {"seconds": text.duration, "bytes": text.size}.get(kind)
    return shown(number) if shown is not None else f"{number:,.0f}" if number < 1e6 else f"{number:.3g}"


def taken(target: Target) -> str:
    """Mean of a cost with its interval; a lower bound (≥) if not all runs reached the target."""
    found = target.spent
    least = "\N{GREATER-THAN OR EQUAL TO} " if target.is_least else ""
    half = "" if math.isnan(found.high) else f" {PLUS_MINUS} {cost(found.high - found.mean, target.kind)}"
    return f"{least}{cost(found.mean, target.kind)}{half}"


# --- CSV ----------------------------------------------------------------------------------------------------


def write_csv(comparison: Comparison, folder: Path) -> list[Path]:
    """table.csv, target.csv, curves.csv and runs.csv: all that is shown, and what it was made of."""
    tables = {
        "table.csv": [_line_row(comparison, line) for line in comparison.lines],
        "target.csv": [_target_row(target) for target in comparison.targets],
        "curves.csv": _curve_rows(comparison),
        "runs.csv": _run_rows(comparison),
    }
    written = {folder / name: rows for name, rows in tables.items() if rows}
    for path, rows in written.items():
        plain = [{text.inert(name): text.inert(value) for name, value in row.items()} for row in rows]
        frame = pl.DataFrame(plain, infer_schema_length=None, strict=False)
        numbers = [pl.col(name) for name, kind in frame.schema.items() if kind.is_float()]
        frame.with_columns([pl.when(each.is_finite()).then(each) for each in numbers]).write_csv(path)
    return list(written)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _values(group: SeedGroup) -> dict[str, Any]:
    """A group's value on each axis, as text."""
    return {axis: str(value) for axis, value in group.values.items()}


def _line_row(comparison: Comparison, line: Line) -> dict[str, Any]:
    """until_seconds: where the restricted mean is cut off; difference_until_seconds: for the difference."""
    against, other = line.against, comparison.baseline_of(line.group)
    until_s = difference_until_s = math.nan
    if line.metric in WAITS:
        until_s = comparison.until_s(line.metric, line.group)
        difference_until_s = until_s if other is None else comparison.until_s(line.metric, line.group, other)
    found = Estimate(math.nan, math.nan, math.nan, 0) if against is None else against.difference
    return {
        **_values(line.group),
        "metric": line.metric,
        "seeds": line.estimate.runs,
        "mean": line.estimate.mean,
        "low": line.estimate.low,
        "high": line.estimate.high,
        "difference": found.mean,
        "difference_low": found.low,
        "difference_high": found.high,
        "paired": None if against is None else against.paired,
        "p": None if against is None else against.p,
        "p_holm": line.p,
        "until_seconds": until_s,
        "difference_until_seconds": None if against is None else difference_until_s,
        "excluded": " ".join(map(str, line.group.excluded)) or None,
    }


def _target_row(target: Target) -> dict[str, Any]:
    return {
        **_values(target.group),
        "cost": target.kind,
        "runs": len(target.group.runs),
        "reached": target.count,
        "mean": target.spent.mean,
        "low": target.spent.low,
        "high": target.spent.high,
        "until_seconds": target.until,
        "median_seconds": target.median_s,
    }


def _curve_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for metric in comparison.metrics:
        times, curves = comparison.curves(metric)
        for group, mean, half in curves:
            for time_s, each, width in zip(times.tolist(), mean.tolist(), half.tolist(), strict=True):
                found = {"mean": each, "low": each - width, "high": each + width}
                rows.append(_values(group) | {"metric": metric, "seconds": time_s} | found)
    return rows


def _run_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for group in comparison.groups:
        for run in group.runs:
            metrics = {metric: run.number(metric) for metric in comparison.metrics}
            work = {f"{kind}_per_client": run.view.get("work", kind, "mean") for kind in BUDGETS}
            hashed = {"trace_hash": run.view.get("trace_hash"), "directory": run.directory.name}
            rows.append(_values(group) | {"seed": run.seed} | metrics | work | hashed)
    return rows


# --- LaTeX --------------------------------------------------------------------------------------------------


def latex(comparison: Comparison) -> str:
    """A table for papers, by booktabs: a row for each group, a column for each metric and cost."""
    axes = _axes(comparison)
    heads = [*axes, *map(titled, comparison.metrics)]
    heads += [f"{kind} to {_target_text(comparison)}" for kind in comparison.kinds]
    rows = []
    for group in comparison.groups:
        cells = [_escaped(value) for value in _values(group).values()]
        for metric in comparison.metrics:
            line = comparison.line(group, metric)
            cells.append(_mathematics(interval(line.estimate, metric), "^{*}" if line.is_significant else ""))
        for target in comparison.targets_of(group):
            reached = f" ({target.count}/{len(group.runs)})" if target.count < len(group.runs) else ""
            cells.append(_mathematics(taken(target)) + reached)
        rows.append(" & ".join(cells) + r" \\")
    alignment = "l" * len(axes) + "r" * (len(heads) - len(axes))
    return "\n".join(
        [
            f"% {caption(comparison)}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            " & ".join(map(_escaped, heads)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def caption(comparison: Comparison) -> str:
    """What the numbers of a table are."""
    seeds = sorted({len(group.runs) for group in comparison.groups})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    parts = [f"Mean and 95 % interval over {count} seed{'s' * (seeds[-1] != 1)}."]
    number = sum(not math.isnan(line.p) for line in comparison.lines)
    if number:
        parts.append(
            f"* differs from the baseline ({comparison.baseline_text}) with p < .05, by seed, corrected "
            f"for {number} comparisons (Holm)."
        )
    if any(group.excluded for group in comparison.groups):
        parts.append(
            "Clients that a case excludes do not count in its rows, nor, for a difference, in what it is "
            "held against; graphs, totals, catch-up and recovery are of all."
        )
    horizons = [_horizons(comparison, metric) for metric in comparison.metrics if metric in WAITS]
    parts += filter(None, horizons)
    if comparison.targets:
        until = text.duration(comparison.targets[0].until)
        parts.append(
            f"A run that has not reached the target by {until} counts with "
            "what it had spent by then: the mean is then the least that it takes."
        )
    return " ".join(parts)


def _target_text(comparison: Comparison) -> str:
    assert comparison.target is not None
    metric = comparison.study.measure
    sign = "" if higher_is_better(metric) else "at most "
    return f"{sign}{figure(comparison.target, metric)}{' %' if is_share(metric) else ''}"


_MATHEMATICS: dict[str, str | int | None] = {
    "\N{NO-BREAK SPACE}": "~",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
}
_MATHEMATICS |= {text.NOTHING: "--", PLUS_MINUS: r"$\pm$"}
_SPECIAL: dict[str, str | int | None] = {character: f"\\{character}" for character in "&%$#_{}"}
_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _mathematics(shown: str, mark: str = "") -> str:
    return shown.translate(str.maketrans(_MATHEMATICS)) + (f"${mark}$" if mark else "")


def _escaped(words: str) -> str:
    return words.translate(str.maketrans(_SPECIAL))


# --- to be read ---------------------------------------------------------------------------------------------


def rows_to_show(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, one for each group: its values, its seeds, each metric, and that above the baseline."""
    has_baseline = any(line.against is not None for line in comparison.lines)
    heads = [*_axes(comparison), "seeds"]
    for metric in comparison.metrics:
        heads += [titled(metric), *(["difference"] if has_baseline else [])]
    rows = []
    for group in comparison.groups:
        row = [*_values(group).values(), str(len(group.runs))]
        for metric in comparison.metrics:
            line = comparison.line(group, metric)
            row += [interval(line.estimate, metric), *([difference(line)] if has_baseline else [])]
        rows.append(row)
    return heads, rows


def targets_to_show(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The same of what the target takes."""
    heads = [*_axes(comparison), "reached by", *comparison.kinds, "median seconds"]
    rows = []
    for group in comparison.groups:
        found = comparison.targets_of(group)
        reached = f"{found[0].count} of {len(group.runs)}"
        row = [*_values(group).values(), reached, *map(taken, found), text.duration(found[0].median_s)]
        rows.append(row)
    return heads, rows


def budgets_to_show(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """What each group spent, per client."""
    heads = [*_axes(comparison), "training steps", "samples", "bytes sent", "time up"]
    rows = []
    for group in comparison.groups:
        steps, samples, sent, up_s = map(group.budget, BUDGETS)
        shown = [f"{steps:,.0f}", f"{samples:,.0f}", text.size(_number(sent)), text.duration(_number(up_s))]
        rows.append([*_values(group).values(), *shown])
    return heads, rows


def _axes(comparison: Comparison) -> list[str]:
    """The names of the axes."""
    return [comparison.study.label(axis) for axis in comparison.study.axes]


def _horizons(comparison: Comparison, metric: str) -> str:
    """Says where the restricted means of a metric are cut off, for each value of `by`; empty without any."""
    found: dict[float, list[str]] = {}
    for group in comparison.groups:
        until_s = comparison.until_s(metric, group)
        value = str(group.values.get(comparison.by or "", ""))
        if not math.isnan(until_s) and value not in found.setdefault(until_s, []):
            found[until_s].append(value)
    told = [f"{text.duration(until_s)} ({', '.join(values)})" for until_s, values in found.items()]
    if not told:
        return ""
    if len(told) == 1:
        told = [text.duration(next(iter(found)))]
    return f"{name_of(metric).capitalize()}: who waits for longer than {', '.join(told)} counts with that."
