"""Tables of a comparison: as CSV, as LaTeX, for the terminal and for the page."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from sim.results import text
from sim.results.measures import MEASURES
from sim.results.outcome import cautions
from sim.results.text import counted
from sim.studies.comparison import Comparison
from sim.studies.energy import (
    NAMES,
    energy_amounts,
    energy_cells,
    energy_column_heads,
    energy_note,
    states_energy,
)
from sim.studies.groups import BUDGETS, GroupMetric, SeedGroup, TargetCost
from sim.studies.robust import RobustStatistics
from sim.studies.statistics import Estimate
from sim.studies.study import (
    CATCH_UP,
    ENERGY,
    HURT,
    IMPROVEMENT,
    RECOVERY,
    WAITS,
    WORST,
    higher_is_better,
    is_share,
    metric_bounds,
)

CSV_FILES = ("table.csv", "target.csv", "curves.csv", "runs.csv")
"""Names of the CSV files of a comparison."""
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
_SECONDS = ("seconds", "_s", *WAITS)
_NAMES = {
    "graph.l1": "graph error (l1)",
    CATCH_UP: "catch-up of newcomers",
    RECOVERY: "recovery from departures",
    "population.deepest_dip": "deepest dip",
    IMPROVEMENT: "better than baseline",
    HURT: "worse than alone",
    **{f"{ENERGY}.{amount}": name for amount, name in NAMES.items()},
}
_SPENT = {
    "seconds": "virtual time",
    "bytes": "bytes sent",
    "joules": "energy",
    "steps": "training steps",
    "FLOPs": "FLOPs",
}
_COSTS_NOTE = (
    "Means of runs up to the target, with 95% intervals over seeds. Each cost except the virtual time is a "
    "total of all clients of a run."
)
_UNKNOWN = Estimate(math.nan, math.nan, math.nan, 0)
_NO_ROBUST = RobustStatistics(_UNKNOWN, _UNKNOWN, _UNKNOWN)


def metric_label(metric: str) -> str:
    """Return the name of a metric in tables and pictures, without its unit."""
    if metric.endswith(WORST):
        return f"{metric_label(metric.removesuffix(WORST))}, worst 10%"
    labels = {measure.name: measure.label for measure in MEASURES}
    return _NAMES.get(metric) or labels.get(metric) or metric.replace("_", " ").replace(".", ", ")


def metric_unit(metric: str) -> str:
    units = {f"{ENERGY}.joules": "J", f"{ENERGY}.co2_grams": "g"}
    return "%" if is_share(metric) else "s" if metric.endswith(_SECONDS) else units.get(metric, "")


def label_with_unit(metric: str) -> str:
    unit = metric_unit(metric)
    return f"{metric_label(metric)} [{unit}]" if unit else metric_label(metric)


def display_factor(metric: str) -> float:
    """Return the factor from a metric's stored values to displayed ones."""
    return 100.0 if is_share(metric) else 1.0


def value_text(number: float, metric: str) -> str:
    """Format a value of a metric, without its unit."""
    if math.isnan(number):
        return text.NOTHING
    if is_share(metric):
        return f"{100 * number:.1f}"
    return f"{number:,.0f}" if 999.5 <= abs(number) < 1e6 else f"{number:.3g}"


def interval_text(found: Estimate, metric: str) -> str:
    """Format mean and half width, or both ends of a clipped interval."""
    if math.isnan(found.high):
        return value_text(found.mean, metric)
    if not math.isclose(found.high - found.mean, found.mean - found.low, rel_tol=1e-6, abs_tol=1e-12):
        ends = f"{value_text(found.low, metric)} to {value_text(found.high, metric)}"
        return f"{value_text(found.mean, metric)} ({ends})"
    return f"{value_text(found.mean, metric)} {PLUS_MINUS} {value_text(found.high - found.mean, metric)}"


def difference_text(line: GroupMetric) -> str:
    """Format a group's difference from its baseline, with * if it is significant."""
    if line.against is None:
        return ""
    found = line.against.difference
    sign = "+" if found.mean > 0 else ""
    return f"{sign}{interval_text(found, line.metric)}{'*' if line.is_significant else ''}"


def cost_text(number: float, kind: str) -> str:
    if math.isnan(number):
        return text.NOTHING
    shown = {"seconds": text.duration, "bytes": text.size, "joules": text.energy}.get(kind)
    return shown(number) if shown is not None else f"{number:,.0f}" if number < 1e6 else f"{number:.3g}"


def target_cost_text(target: TargetCost) -> str:
    """Format the mean of a cost and its interval; a lower bound (≥) if some runs missed the target."""
    found = target.spent
    least = "\N{GREATER-THAN OR EQUAL TO} " if target.is_least else ""
    width, half = found.high - found.mean, ""
    if found.low <= 0 < width:  # clipped at 0
        half = f" (0 to {cost_text(found.high, target.kind)})"
    elif width > 1e-9 * found.mean:  # equal costs, such as the ends of all runs, have no interval
        half = f" {PLUS_MINUS} {cost_text(width, target.kind)}"
    return f"{least}{cost_text(found.mean, target.kind)}{half}"


# --- CSV ----------------------------------------------------------------------------------------------------


def write_csv(comparison: Comparison, folder: Path) -> list[Path]:
    """Write table.csv, target.csv, curves.csv and runs.csv, the data of the page, and return their paths.

    A file without rows is left out.
    """
    written = {folder / name: frame for name, frame in written_frames(comparison).items()}
    for path, frame in written.items():
        frame.write_csv(path)
    return list(written)


def written_frames(comparison: Comparison) -> dict[str, pl.DataFrame]:
    """Return the contents of the files that `write_csv` writes, by name, without formulas."""
    return {
        f"{name}.csv": _frame(
            [
                {text.without_formula(key): text.without_formula(value) for key, value in row.items()}
                for row in rows
            ]
        )
        for name, rows in _rows(comparison).items()
        if rows
    }


def csv_frames(comparison: Comparison) -> dict[str, pl.DataFrame]:
    """Return the contents of the CSV files: "table", "target", "curves" and "runs"."""
    return {name: _frame(rows) for name, rows in _rows(comparison).items()}


def _rows(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    tables = {
        "table": [_line_row(comparison, line) for line in comparison.lines],
        "target": [_target_row(comparison, target) for target in comparison.targets],
        "curves": _curve_rows(comparison),
        "runs": _run_rows(comparison),
    }
    for row in itertools.chain.from_iterable(tables.values()):
        of_clients = "metric" not in row or comparison.study.is_of_clients(row["metric"])
        row["clients"] = comparison.study.clients or None if of_clients else None
    return tables


def _frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a data frame of rows, with null for NaN and infinity."""
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    numbers = [pl.col(name) for name, kind in frame.schema.items() if kind.is_float()]
    return frame.with_columns([pl.when(each.is_finite()).then(each) for each in numbers])


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _interval_columns(found: Estimate, before: str = "") -> dict[str, Any]:
    """Return a mean and its interval by column name; `before` is the prefix of the names."""
    names = ("mean", "low", "high") if not before else (before, f"{before}_low", f"{before}_high")
    return dict(zip(names, found, strict=False))


def _with_axes(group: SeedGroup, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the group's values in columns named as their axes, and these columns.

    An axis with the name of another column, such as "clients", is "clients (axis)".
    """
    taken = {*columns, "clients"}
    values = {f"{axis} (axis)" if axis in taken else axis: text for axis, text in group.texts.items()}
    return values | dict(columns)


def _line_row(comparison: Comparison, line: GroupMetric) -> dict[str, Any]:
    """Return a row of table.csv. Columns until_seconds, difference_until_seconds: cut-offs of waits."""
    against, other = line.against, comparison.baseline_of(line.group)
    until_s = difference_until_s = math.nan
    if line.metric in WAITS:
        until_s = comparison.until_s(line.metric, line.group)
        difference_until_s = until_s if other is None else comparison.until_s(line.metric, line.group, other)
    found = _UNKNOWN if against is None else against.difference
    middle, improvement, hurt = line.robust or _NO_ROBUST
    columns = {
        "metric": line.metric,
        "seeds": line.estimate.runs,
        "tuned": line.group.tuned,
        **_interval_columns(line.estimate),
        **_interval_columns(found, "difference"),
        "paired": None if against is None else against.paired,
        "p": None if against is None else against.p,
        "p_holm": line.p,
        "until_seconds": until_s,
        "difference_until_seconds": None if against is None else difference_until_s,
        **_interval_columns(middle, "iqm"),
        **_interval_columns(improvement, IMPROVEMENT),
        **_interval_columns(hurt, HURT),
        "excluded": " ".join(map(str, line.group.excluded)) or None,
        "warnings": comparison.footnotes.text(comparison.named(line.group)) or None,
    }
    return _with_axes(line.group, columns)


def _target_row(comparison: Comparison, target: TargetCost) -> dict[str, Any]:
    columns = {
        "cost": target.kind,
        "runs": len(target.group.runs),
        "reached": target.count,
        **_interval_columns(target.spent),
        "until_seconds": target.until,
        "median_seconds": target.median_s,
        "warnings": comparison.footnotes.text(comparison.named(target.group)) or None,
    }
    return _with_axes(target.group, columns)


def _curve_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for metric in comparison.metrics:
        times, curves = comparison.curves(metric)
        least, most = metric_bounds(metric)
        for group, mean, half in curves:
            for time_s, each, width in zip(times.tolist(), mean.tolist(), half.tolist(), strict=True):
                found = {"mean": each, "low": max(least, each - width), "high": min(most, each + width)}
                rows.append(_with_axes(group, {"metric": metric, "seconds": time_s} | found))
    return rows


def _run_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for group in comparison.groups:
        numbers = {metric: comparison.numbers(group, metric) for metric in comparison.metrics}
        for run in group.runs:
            metrics = {metric: of_seeds[run.seed] for metric, of_seeds in numbers.items()}
            work = {f"{kind}_per_client": run.view.get("work", kind, "mean") for kind in BUDGETS}
            work |= energy_amounts(run) if states_energy(comparison.study.runs) else {}
            hashed = {"trace_hash": run.view.get("trace_hash"), "directory": run.directory.name}
            warned = {"warnings": "; ".join(cautions(run.view.summary)) or None}
            rows.append(_with_axes(group, {"seed": run.seed} | metrics | work | hashed | warned))
    return rows


def caption(comparison: Comparison) -> str:
    """Return the caption of the tables, with the statistics used."""
    seeds = sorted({len(group.runs) for group in comparison.groups})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    parts = ["One seed." if seeds[-1] == 1 else f"Mean and 95% interval over {count} seeds."]
    number = sum(not math.isnan(line.p) for line in comparison.lines)
    if number:
        parts.append(
            f"* marks a difference from the baseline ({comparison.baseline_text}) with p < .05, tested by "
            f"seed and corrected for {counted(number, 'comparison')} (Holm)."
        )
    parts += _counted_clients_note(comparison)
    if any(group.excluded for group in comparison.groups):
        parts.append(
            "Clients excluded by a case count neither in its rows nor, for differences, in its baseline; "
            "graphs, totals, catch-up and recovery cover all clients."
        )
    horizons = [_horizons(comparison, metric) for metric in comparison.metrics if metric in WAITS]
    parts += filter(None, horizons)
    if comparison.targets:
        until = text.duration(comparison.targets[0].until)
        parts.append(
            f"A run that has not reached the target by {until} counts with its cost up to that time; the "
            "mean is then a lower bound."
        )
    return " ".join(parts)


def _counted_clients_note(comparison: Comparison) -> list[str]:
    """Return a sentence about the clients that count, if not all do."""
    only = comparison.study.clients
    if not only:
        return []
    return [
        f"Metrics of clients cover only clients {only}; graphs, catch-up, recovery and used resources cover "
        "all clients."
    ]


def target_text(comparison: Comparison) -> str:
    assert comparison.target is not None
    metric = comparison.study.measure
    sign = "" if higher_is_better(metric) else "at most "
    return f"{sign}{value_text(comparison.target, metric)}{'%' if is_share(metric) else ''}"


def cost_name_and_scope(kind: str) -> str:
    """Return the name of a cost of a run, and whether it is a total of all clients."""
    return f"{_SPENT[kind]} per run" if kind == "seconds" else f"{_SPENT[kind]}, all clients"


# --- for the page and the terminal --------------------------------------------------------------------------


class ShownTable(NamedTuple):
    """A table with a row per group: its values on the axes, and its results; note: text below the table."""

    title: str
    axes: list[str]
    heads: list[str]
    rows: list[list[str]]
    note: str


def tables_to_show(comparison: Comparison) -> list[ShownTable]:
    """Return the tables: final metrics, statistics over clients, costs of a target, energy, resources."""
    has_baseline = any(line.against is not None for line in comparison.lines)
    heads = ["seeds", *(["tuned"] if comparison.any_tuned else [])]
    for metric in comparison.metrics:
        heads += [metric_column_head(comparison, metric), *(["difference"] if has_baseline else [])]

    def at_the_end(group: SeedGroup) -> list[str]:
        cells = [str(len(group.runs)), *([group.tuned] if comparison.any_tuned else [])]
        for line in [comparison.line(group, metric) for metric in comparison.metrics]:
            shown = with_footnote_marks(interval_text(line.estimate, line.metric), comparison, group)
            cells += [shown, *([difference_text(line)] if has_baseline else [])]
        return cells

    def to_the_target(group: SeedGroup) -> list[str]:
        found = comparison.targets_of(group)
        reached = f"{found[0].count} of {len(group.runs)}"
        return [
            with_footnote_marks(reached, comparison, group),
            *map(target_cost_text, found),
            text.duration(found[0].median_s),
        ]

    def spent(group: SeedGroup) -> list[str]:
        steps, samples, sent, up_s = map(group.budget, BUDGETS)
        return [f"{steps:,.0f}", f"{samples:,.0f}", text.size(_number(sent)), text.duration(_number(up_s))]

    def table(
        title: str, heads: list[str], cells: Callable[[SeedGroup], list[str]], note: str = ""
    ) -> ShownTable:
        rows = [[*group.texts.values(), *cells(group)] for group in comparison.groups]
        return ShownTable(title, axis_labels(comparison), heads, rows, note)

    robust = over_clients_table(comparison)
    tables = [table("At the end", heads, at_the_end, caption(comparison)), *([robust] if robust else [])]
    if comparison.targets:
        takes = ["reached by", *map(cost_name_and_scope, comparison.kinds), "virtual time per run, median"]
        goal = f"Costs of reaching {metric_label(comparison.study.measure)} {target_text(comparison)}"
        tables.append(table(goal, takes, to_the_target, _COSTS_NOTE))
    title = "Resources used per client" + (", all clients" if comparison.study.clients else "")
    if states_energy(runs := comparison.study.runs):
        tables.append(table("Energy of a run", energy_column_heads(runs), energy_cells, energy_note(runs)))
    used = [f"{each} per client" for each in ("training steps", "samples", "bytes sent", "time up")]
    return [*tables, table(title, used, spent, "Means over clients and seeds, at the end of each run.")]


def with_footnote_marks(cell: str, comparison: Comparison, group: SeedGroup) -> str:
    """Return a cell with the marks of the warnings of its group's runs."""
    marks = comparison.footnotes.marks(comparison.named(group))
    return f"{cell} {marks}" if marks else cell


def over_clients_table(comparison: Comparison) -> ShownTable | None:
    """Return the table of interquartile means, improvement and harm; None without a metric per client."""
    columns: list[tuple[str, list[str]]] = []
    for metric in comparison.metrics:
        found = [comparison.line(group, metric).robust or _NO_ROBUST for group in comparison.groups]
        names = (
            f"{metric_column_head(comparison, metric)}, IQM",
            label_with_unit(IMPROVEMENT),
            label_with_unit(HURT),
        )
        for name, like, column in zip(
            names, (metric, IMPROVEMENT, HURT), zip(*found, strict=True), strict=True
        ):
            if any(each.runs for each in column):
                columns.append((name, [interval_text(each, like) for each in column]))
    if not columns:
        return None
    heads, cells = zip(*columns, strict=True)
    rows = [
        [*group.texts.values(), *[with_footnote_marks(cell, comparison, group) for cell in row[:1]], *row[1:]]
        for group, row in zip(comparison.groups, zip(*cells, strict=True), strict=True)
    ]
    notes = ["IQM: interquartile mean, the mean of the middle half of the results of all clients and seeds."]
    if label_with_unit(IMPROVEMENT) in heads:
        notes.append(
            f"Better than baseline ({comparison.baseline_text}): share of the clients with a better result "
            "than with the same seed there; a tie counts half."
        )
    if label_with_unit(HURT) in heads:
        notes.append("Worse than alone: share of the clients below their own training alone.")
    if any(len(group.runs) > 1 for group in comparison.groups):
        notes.append("95% intervals by bootstrap of whole runs; they are too narrow with few seeds.")
    notes += _counted_clients_note(comparison)
    return ShownTable("Over clients and seeds", axis_labels(comparison), list(heads), rows, " ".join(notes))


def metric_column_head(comparison: Comparison, metric: str) -> str:
    """Return the column head of a metric: name, unit, and the clients that count if not all do."""
    only = comparison.study.clients if comparison.study.is_of_clients(metric) else ""
    return f"{label_with_unit(metric)}{only and f', clients {only}'}"


def axis_labels(comparison: Comparison) -> list[str]:
    return [comparison.study.label(axis) for axis in comparison.study.axes]


def _horizons(comparison: Comparison, metric: str) -> str:
    """Describe the cut-offs of a metric's restricted means by value of `by`; empty without any."""
    found: dict[float, list[str]] = {}
    for group in comparison.groups:
        until_s = comparison.until_s(metric, group)
        value = str(group.values.get(comparison.by or "", ""))
        if not math.isnan(until_s) and value not in found.setdefault(until_s, []):
            found[until_s].append(value)
    limits = [f"{text.duration(until_s)} ({', '.join(values)})" for until_s, values in found.items()]
    if not limits:
        return ""
    if len(limits) == 1:
        limits = [text.duration(next(iter(found)))]
    return f"{metric_label(metric).capitalize()}: longer times count as {', '.join(limits)}."
