"""Tables of docs/compare-methods.md: all methods with tuned settings, on several data sets and partitions.

`coterie sweep scenarios/studies/fair/methods_tuned.toml` makes the runs, and so do methods_drawn_1.toml and
methods_drawn_2.toml. `coterie compare` writes a table of each sweep. `python -m benchmarks.methods TABLE...`
with these tables writes docs/studies/methods.csv, the picture, and the parts of the page between its marks;
`--clusters RUNS` with the runs.csv of clusters.toml writes docs/studies/methods-clusters.csv.
Every order that the page states is computed here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl
from scipy.stats import spearmanr

from sim.results.palette import DARK, FONT, LIGHT
from sim.results.text import counted

DOCS = Path(__file__).parents[1] / "docs"
PAGE, CSV, PICTURE = (
    DOCS / "compare-methods.md",
    DOCS / "studies" / "methods.csv",
    DOCS / "studies" / "methods.svg",
)
CLUSTERS = DOCS / "studies" / "methods-clusters.csv"
LOCAL, ORACLE = "local", "oracle"
TUNED_ON = ("digits, Dirichlet 0.4", "digits, permuted labels")
"""Tables on which the settings were selected."""
IID = "digits, IID"
TRANSFERRED = "Fashion-MNIST"
"""Data set on which no settings were selected."""
ONE_MODEL = frozenset(
    (
        "afl",
        "cga",
        "dfedavgm",
        "dpsgd",
        "el-oracle",
        "fedasync",
        "fedavg",
        "fedbuff",
        "gossip",
        "q-ffl",
        "scaffold",
    )
)
"""Methods that learn one model for all clients."""
NEAR = 0.015
FOUND = 0.03
"""A method found the clusters with a seed if it is at most so far below the oracle."""
_COLUMNS = ("mean", "low", "high", "hurt", "difference_low", "difference_high")
_BYTES_PER_MB = 1e6


def results(tables: Sequence[Path]) -> pl.DataFrame:
    """Return a row for each table and method, from the tables that `coterie compare` wrote.

    Columns: table, method, seeds (with a finite result), mean, low, high (accuracy and its 95% interval),
    hurt (share of the clients that are worse than alone), difference_low, difference_high (interval of the
    difference from local training with the same seed), worst (mean of the worst tenth), megabytes (sent by
    all clients).
    """
    found = []
    for path in tables:
        frame = pl.read_csv(path)
        if "table" not in frame.columns:  # a drawn scenario is one table
            frame = frame.with_columns(table=pl.lit(path.stem.replace("-", " ")))
        frame = frame.with_columns(pl.col("method").map_elements(label, return_dtype=pl.String))
        keys = ["table", "method"]
        measured = {metric: rows for (metric,), rows in frame.group_by("metric", maintain_order=True)}
        found.append(
            measured["accuracy"]
            .select(*keys, "seeds", *(pl.col(name).cast(pl.Float64) for name in _COLUMNS))
            .join(measured["accuracy.worst_decile"].select(*keys, worst="mean"), on=keys)
            .join(measured["messages.bytes"].select(*keys, megabytes=pl.col("mean") / _BYTES_PER_MB), on=keys)
        )
    return pl.concat(found).with_columns(pl.col(pl.Float64).round(6))


def label(method: str) -> str:
    """Return a method's name without a comma: "scool (sbm), synchronous" is "scool (sbm, synchronous)"."""
    name, _, form = method.partition(", ")
    return method if not form else f"{name[:-1]}, {form})" if name.endswith(")") else f"{name} ({form})"


def parts(frame: pl.DataFrame) -> dict[str, str]:
    """Return the parts of the page by the names of their marks."""
    names = frame["table"].unique(maintain_order=True).to_list()
    found = {"first": "\n".join(_first_of_each(frame)), "safe": "\n".join(_never_below(frame))}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition(", ")[0] if ", " in name else "drawn", []).append(name)
    for group, tables in groups.items():
        found[f"table {group}"] = "\n".join(_table(frame, tables))
    if other := [name for name in names if name.startswith(TRANSFERRED)]:
        found["transfer"] = "\n".join(_diverged(frame, other))
    found["ranks"] = "\n".join(_rank_correlations(frame))
    if IID in names:
        found["iid"] = "\n".join(_where_all_agree(frame.filter(pl.col("table") == IID)))
    found["below"] = "\n".join(_below_local(frame))
    return found


def _first_of_each(frame: pl.DataFrame) -> Iterator[str]:
    yield "| table | first | not clearly below it | better than local training |"
    yield "| --- | --- | --- | ---: |"
    others = frame["method"].n_unique() - 1
    for (name,), rows in frame.group_by("table", maintain_order=True):
        whole = rows.filter(pl.col("seeds") == rows["seeds"].max())
        best = whole.sort("mean", descending=True).row(0, named=True)
        near = whole.filter((pl.col("high") >= best["mean"]) & (pl.col("method") != best["method"]))
        better = rows.filter(pl.col("difference_low") > 0)
        named = ", ".join(near.sort("mean", descending=True)["method"].head(5)) or "none"
        more = f", and {counted(near.height - 5, 'other')}" if near.height > 5 else ""
        yield (
            f"| {name} | {best['method']}: {_percent(best['mean'])} | {named}{more} | "
            f"{better.height} of {others} methods |"
        )


def _never_below(frame: pl.DataFrame) -> Iterator[str]:
    """Yield the methods that are clearly above local training in most tables, and clearly below in none."""
    count = frame["table"].n_unique()
    counts = (
        frame.filter(pl.col("method") != LOCAL)
        .group_by("method")
        .agg(above=(pl.col("difference_low") > 0).sum(), below=(pl.col("difference_high") < 0).sum())
        .filter((pl.col("below") == 0) & (pl.col("above") * 2 > count))
        .sort("above", "method", descending=[True, False])
    )
    yield f"| method | tables of {count} in which it is better than local training |"
    yield "| --- | ---: |"
    for above, rows in counts.group_by("above", maintain_order=True):
        yield f"| {', '.join(rows['method'])} | {above[0]} |"


def _table(frame: pl.DataFrame, tables: Sequence[str]) -> Iterator[str]:
    seeds = frame["seeds"].max()
    shown = {name: frame.filter(pl.col("table") == name) for name in tables}
    heads = [name.partition(", ")[2] or name for name in tables]
    yield f"| method | {' | '.join(heads)} |"
    yield f"| --- | {' | '.join(['---:'] * len(heads))} |"
    means = frame.filter(pl.col("table").is_in(tables)).group_by("method").agg(pl.col("mean").mean())
    for method in means.sort("mean", "method", descending=[True, False])["method"]:
        cells = []
        for rows in shown.values():
            row = rows.filter(pl.col("method") == method)
            cells.append(_cell(row.row(0, named=True), seeds) if row.height else "diverged")
        yield f"| {method} | {' | '.join(cells)} |"


def _cell(row: dict[str, Any], seeds: object) -> str:
    half = "" if row["high"] is None else f" ± {_percent((row['high'] - row['low']) / 2)}"
    hurt = "" if row["hurt"] is None or row["method"] == LOCAL else f" ({100 * row['hurt']:.0f})"
    diverged = "" if row["seeds"] == seeds else f", {row['seeds']} of {seeds} seeds"
    return f"{_percent(row['mean'])}{half}{hurt}{diverged}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _rank_correlations(frame: pl.DataFrame) -> Iterator[str]:
    tuned = frame.filter(pl.col("table").is_in(TUNED_ON)).group_by("method").agg(pl.col("mean").mean())
    yield "| table | rank correlation with the mean of the tuning tables |"
    yield "| --- | ---: |"
    for (name,), rows in frame.group_by("table", maintain_order=True):
        if name not in TUNED_ON:
            both = rows.join(tuned, on="method", suffix="_tuned")
            yield f"| {name} | {spearmanr(both['mean'], both['mean_tuned']).statistic:.2f} |"


def _diverged(frame: pl.DataFrame, tables: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about the runs of these tables without a finite result."""
    seeds, shown = frame["seeds"].max(), frame.filter(pl.col("table").is_in(tables))
    assert isinstance(seeds, int)
    methods = frame["method"].unique(maintain_order=True).to_list()
    finite = {method: shown.filter(pl.col("method") == method)["seeds"].sum() for method in methods}
    each, total = seeds * len(tables), seeds * len(tables) * len(methods)
    lost = {method: each - count for method, count in finite.items() if count < each}
    named = ", ".join(f"{name} ({count})" for name, count in sorted(lost.items(), key=lambda pair: -pair[1]))
    yield (
        f"{sum(lost.values()):,} of {total:,} runs diverge, and are not part of the means. By method, of "
        f"{each} runs each: {named}."
    )


def _where_all_agree(rows: pl.DataFrame) -> Iterator[str]:
    accuracy = dict(zip(rows["method"], rows["mean"], strict=True))
    shared = {name for name in accuracy if name.partition(" ")[0] in ONE_MODEL}
    least = accuracy["fedavg"] - NEAR
    far = [
        f"{name} ({_percent(accuracy[name])})"
        for name in accuracy
        if name in shared and accuracy[name] < least
    ]
    under = [
        f"{name} ({_percent(value)})"
        for name, value in accuracy.items()
        if name not in shared and value < accuracy[LOCAL]
    ]
    personal = len(accuracy) - len(shared) - 1  # without local training
    yield (
        f"- Of the {len(shared)} forms with one model for all, {len(shared) - len(far)} are at most "
        f"{_percent(NEAR)} points below FedAvg ({_percent(accuracy['fedavg'])}). "
        f"Further below: {', '.join(far) or 'none'}."
    )
    yield (
        f"- Of the {personal} other forms, {personal - len(under)} are at or above local training "
        f"({_percent(accuracy[LOCAL])}). Below it: {', '.join(under) or 'none'}."
    )


def _below_local(frame: pl.DataFrame) -> Iterator[str]:
    yield "| table | clearly below local training (interval of the difference below 0) |"
    yield "| --- | --- |"
    for (name,), rows in frame.group_by("table", maintain_order=True):
        below = rows.filter(pl.col("difference_high") < 0).sort("mean")
        yield f"| {name} | {', '.join(below['method']) or 'none'} |"


def clusters_part(runs: pl.DataFrame) -> Iterator[str]:
    """Yield a table of the methods that found the clusters. runs: columns method, seed, accuracy."""
    accuracy = {(row["method"], row["seed"]): row["accuracy"] for row in runs.iter_rows(named=True)}
    seeds = sorted({seed for _, seed in accuracy})
    yield f"| method | accuracy with the seeds {seeds[0]} to {seeds[-1]} | clusters found |"
    yield "| --- | --- | ---: |"
    for method in dict.fromkeys(method for method, _ in accuracy):
        values = [accuracy[method, seed] for seed in seeds]
        count = sum(
            value >= accuracy[ORACLE, seed] - FOUND for seed, value in zip(seeds, values, strict=True)
        )
        found = "-" if method in (ORACLE, LOCAL) else f"{count} of {len(seeds)}"
        yield f"| {method} | {', '.join(map(_percent, values))} | {found} |"


def page_with(page: str, found: dict[str, str]) -> str:
    """Return the text of the page with these parts between `<!-- NAME -->` and `<!-- end -->`."""
    for name, text in found.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(start)
        _, found_end, after = rest.partition(end)
        if not found_end:
            raise SystemExit(f"{PAGE.name}: has no part {name!r}; add its two marks")
        page = f"{before}{start}{text}\n{end}{after}"
    return page


WIDTH, HEIGHT, LEFT, BOTTOM = 860, 520, 56, 44


def picture(frame: pl.DataFrame) -> str:
    """Return an SVG: mean accuracy against megabytes sent by all clients (log scale).

    Means are taken over the tables of the data on which the settings were selected, and over drawn scenarios.
    """
    from math import log10

    frame = frame.filter(~pl.col("table").str.starts_with(TRANSFERRED))
    all_tables = frame["table"].n_unique()
    means = (
        frame.group_by("method", maintain_order=True)
        .agg(pl.col("mean").mean(), pl.col("megabytes").mean(), tables=pl.len())
        .filter((pl.col("tables") == all_tables) & (pl.col("megabytes") > 0))
    )
    logs = [log10(value) for value in means["megabytes"]]
    accuracies = means["mean"].to_list()
    low_x, high_x = min(logs) - 0.1, max(logs) + 0.5
    low_y, high_y = min(accuracies) - 0.02, max(accuracies) + 0.02

    def x_of(value: float) -> float:
        return LEFT + (value - low_x) / (high_x - low_x) * (WIDTH - LEFT - 10)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low_y) / (high_y - low_y) * (HEIGHT - BOTTOM - 14)

    body = []
    for power in range(int(low_x) - 1, int(high_x) + 2):
        if low_x <= power <= high_x:
            body.append(f'<text class="faint" x="{x_of(power):.0f}" y="{HEIGHT - 26}">{10.0**power:g}</text>')
    for tenth in range(11):
        if low_y <= tenth / 10 <= high_y:
            y = y_of(tenth / 10)
            body.append(f'<text class="faint" x="8" y="{y:.0f}">{tenth * 10}</text>')
            body.append(f'<path class="grid" d="M{LEFT} {y:.0f}H{WIDTH}"/>')
    local = frame.filter(pl.col("method") == LOCAL)["mean"].mean()
    if isinstance(local, float):
        body.append(f'<path class="local" d="M{LEFT} {y_of(local):.0f}H{WIDTH}"/>')
        body.append(f'<text class="faint" x="{LEFT + 4}" y="{y_of(local) - 4:.0f}">local training</text>')
    body += _points(means["method"].to_list(), [*map(x_of, logs)], [*map(y_of, accuracies)])
    axis = "megabytes sent by all clients (log scale); upwards: mean accuracy, %"
    body.append(f'<text class="faint" x="{LEFT}" y="{HEIGHT - 8}">{axis}</text>')
    return "\n".join([_opening(), *body, "</svg>\n"])


def _points(names: Sequence[str], xs: Sequence[float], ys: Sequence[float]) -> Iterator[str]:
    """Yield dots with labels; a label that would cover another moves down."""
    placed: list[tuple[float, float, float]] = []
    for name, x, y in sorted(zip(names, xs, ys, strict=True), key=lambda each: each[2]):
        width, line = 5.6 * len(name) + 8, y + 4
        while any(abs(line - other) < 11 and x < right and left < x + width for left, right, other in placed):
            line += 3
        placed.append((x, x + width, line))
        yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        yield f'<text class="ink" x="{x + 6:.1f}" y="{line:.1f}">{escape(name)}</text>'


def _opening() -> str:
    def rules(colors: dict[str, str]) -> str:
        return (
            f"text{{font:10px {FONT};fill:{colors['ink']}}} .faint{{fill:{colors['faint']}}}"
            f" .dot{{fill:{colors['blue']}}} .grid{{stroke:{colors['faint']};stroke-width:.2}}"
            f" .local{{stroke:{colors['orange']};stroke-dasharray:4 3}}"
        )

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        "<title>Mean accuracy of each method against the bytes that it sends</title>"
        f"<style>{rules(LIGHT)} @media (prefers-color-scheme: dark){{{rules(DARK)}}}</style>"
    )


def write(frame: pl.DataFrame, runs: pl.DataFrame) -> None:
    """Write the tables, the picture and the parts of the page. runs: the runs of the study of clusters."""
    frame.write_csv(CSV)
    runs.write_csv(CLUSTERS)
    PICTURE.write_text(picture(frame), encoding="utf-8")
    found = parts(frame) | {"clusters": "\n".join(clusters_part(runs))}
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read tables of `coterie compare`, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", nargs="+", type=Path, help="table.csv of `coterie compare`")
    parser.add_argument("--clusters", type=Path, default=CLUSTERS, help="runs.csv of `coterie compare`")
    stated = parser.parse_args(arguments)
    runs = pl.read_csv(stated.clusters).select("method", "seed", pl.col("accuracy").round(6))
    write(results(stated.table), runs)


if __name__ == "__main__":
    main()
